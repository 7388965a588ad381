// Package compat installs rulesets with nf_tables or, on nodes without it, with iptables-legacy. It
// also reads all rules of a namespace, including foreign ones.
//
// A [Backend] applies, checks, reads and removes rulesets in network namespaces. There are two
// backends: nft uses package nft, and legacy writes the iptables-legacy tables to which [Translate]
// converts a ruleset. [Choose] returns a backend by name; "auto" uses the first backend that the
// kernel supports.
//
//	backend, err := compat.Choose(compat.BackendAuto)
//	...
//	result, err := backend.Apply(ns, ruleset, compat.Snapshot{})
//	...
//	found, err := backend.Check(ns, ruleset, result.Snapshot())
//	if len(found.Differences) > 0 {
//		_, err = backend.Apply(ns, ruleset, found.Snapshot) // repairs, without reading again
//	}
//
// [ReadLive] returns all rules that affect the packets of a namespace, in the order in which the
// kernel evaluates them. [ReadTables] returns the iptables-legacy tables. [FindLegacyIstio] and
// [RemoveLegacyIstio] find and remove the rules that istio-iptables added. Package xtables accesses
// the iptables-legacy tables in the kernel, and package save prints and parses the text format of
// iptables-save.
package compat
