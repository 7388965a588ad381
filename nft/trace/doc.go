// Package trace observes the kernel's evaluation of packets. It enables tracing for the first
// packets of connections with "meta nftrace set 1" and decodes the messages NFT_MSG_TRACE that
// nf_tables multicasts for these packets.
//
// A [Session] adds the table [Table], and removes the table when the session is closed. On kernels
// with owner tables (Linux 5.12), the table belongs to the netlink socket of the session: the
// kernel removes it when the process ends for any reason, and no other process can change it. On
// older kernels, [Open] and [Remove] remove the table of a killed session.
//
// The kernel writes the traces of rules of iptables-legacy to netfilter's packet log, from which a
// [Log] receives them.
//
// The rules of the table change only the flag nf_trace of packets. TCP segments with SYN and
// without ACK are traced from the first chain of prerouting and output. Packets of other protocols
// are traced while the conntrack state of their connection is new, that is, until the first reply.
// Their traces begin at the priority after conntrack. Untracked packets are not traced, except for
// SYN segments.
package trace
