// Package trace observes the kernel's evaluation of packets. It enables tracing for the first
// packets of connections with "meta nftrace set 1" and decodes the messages NFT_MSG_TRACE that
// nf_tables multicasts for them.
//
// A [Session] adds the table [Table] and removes it when it is closed. On kernels with owner tables
// (Linux 5.12), the table belongs to the netlink socket of the session: the kernel removes it when
// the process ends for any reason, and no other process can change it. On older kernels [Remove]
// removes the table of a killed session.
//
// The kernel writes the traces of rules of iptables-legacy to netfilter's packet log, from which a
// [Log] receives them.
//
// The rules of the table change only the flag nf_trace of packets. TCP segments with SYN and
// without ACK are traced from the first chain of prerouting and output. For other protocols,
// conntrack determines the first packet of a connection: packets are traced from the priority after
// conntrack until the first reply. Untracked packets are not traced, except for SYN segments.
package trace
