// Package compat puts rulesets into the kernel by either of its engines, and handles the rules of iptables-legacy, for nodes and namespaces
// that have them.
//
// A [Backend] is one engine: nf_tables, which is package nft, or the tables of iptables-legacy, into which [Translate] turns a ruleset;
// [Choose] finds the one that the kernel supports. Besides, the package reads tables of every owner into the model ([ReadTables],
// [ReadLive]), and finds and removes what istio-iptables has left. Package [xtables] is the interface to the kernel, [save] the text format.
package compat
