// Package xtables reads and replaces the tables of iptables-legacy through the kernel's socket options, without a process: those of
// linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h, which have not changed since Linux 2.6 and never will.
//
// The kernel has a table as one block of entries. In it each built-in chain is a run of entries from its hook's entry to its underflow,
// the policy; each chain of users begins with an entry whose target is ERROR and has the chain's name, and ends with an entry that
// returns; one more ERROR ends the table. A jump is the offset of the first entry of a chain. [Read] turns that into chains of rules,
// of which each keeps its bytes, and [Replace] back: what has not been edited stays as it was, byte for byte.
//
// The layout is that of 64-bit machines. In a 32-bit process everything fails.
package xtables
