// Package compat installs rulesets with nf_tables or, on nodes without it, with iptables-legacy,
// and reads the rules of every owner.
//
// A [Backend] applies, checks, reads and removes rulesets in network namespaces. There are two:
// nft, which uses package nft, and legacy, which writes the tables into which [Translate] turns a
// ruleset. [Choose] returns one by name; "auto" uses the first that the kernel supports.
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
// [ReadLive] returns all rules that decide about the packets of a namespace, of every owner, in the
// order in which the kernel runs them; [ReadTables] returns the tables of iptables-legacy.
// [FindIstio] and [RemoveIstio] handle what istio-iptables has left. Package xtables is the
// interface to the kernel, and package save the text format of iptables-save.
package compat
