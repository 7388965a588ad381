// Package xtables reads and replaces tables of iptables-legacy with the kernel's socket options,
// without starting a process. The interface is that of linux/netfilter_ipv4/ip_tables.h and
// linux/netfilter_ipv6/ip6_tables.h, which is stable since Linux 2.6.
//
// The kernel stores a table as one block of entries. A built-in chain is the run of entries from
// the entry point of its hook to its underflow, which is the policy. A user-defined chain begins
// with an entry whose target is ERROR and has the chain's name, and ends with an entry that
// returns. One more ERROR ends the table. A jump is the offset of the first entry of a chain.
//
// [Read] turns the block into a [Table] of chains and rules, each of which keeps its bytes, and
// [Replace] turns it back. What was not edited stays the same, byte for byte.
//
//	t, err := xtables.Read(ns, rules.IPv4, "nat")
//	...
//	err = xtables.Replace(ns, t)
//
// The layout is that of 64-bit machines. In a 32-bit process every function fails.
package xtables
