// Package trace observes how the kernel evaluates packets: it marks the first packets of
// connections for tracing by "meta nftrace set 1" and decodes the messages NFT_MSG_TRACE that
// nf_tables then multicasts.
//
// A [Session] adds one table, [Table], and removes it when it is closed. Where the kernel has owner
// tables (Linux 5.12), the table belongs to the netlink socket of the session, so that the kernel
// removes it when the process ends for any reason, and no other process can change it. On older
// kernels [Remove] removes the table of a session that was killed.
//
// The rules of the table change nothing but the flag nf_trace of the packet. TCP segments with SYN
// and without ACK are traced from the first chain of prerouting and output on. For other protocols
// only conntrack knows which packet is the first one of a connection: these packets are traced from
// the place right behind conntrack on, until the first answer. Packets that conntrack does not
// track are not traced, except for SYN segments.
package trace
