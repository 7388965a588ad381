// Package xtables reads and replaces iptables-legacy tables through the kernel's socket options,
// without starting a process. The interface is defined in linux/netfilter_ipv4/ip_tables.h and
// linux/netfilter_ipv6/ip6_tables.h, and has been stable since Linux 2.6.
//
// The kernel stores a table as one block of entries. A built-in chain extends from the entry point
// of its hook to its underflow, which is the entry of the policy. A user-defined chain begins with
// an entry whose ERROR target contains the chain's name, and ends with a RETURN entry. Another
// ERROR entry ends the table. A jump contains the offset of the first rule of a chain.
//
// [Read] decodes the block into a [Table] of chains and rules. Each rule keeps its bytes, so that
// [Replace] writes unedited rules unchanged.
//
//	t, err := xtables.Read(ns, rules.IPv4, "nat")
//	...
//	err = xtables.Replace(ns, t)
//
// The package supports only the layout of 64-bit machines. In a 32-bit process, reading and
// replacing a table return an error.
package xtables
