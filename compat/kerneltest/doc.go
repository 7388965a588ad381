// Package kerneltest compares the model of package rules with the kernel. A [Network] is a network
// of namespaces, into which nft, iptables-restore and ip6tables-restore load a [Ruleset]. The
// package sends packets, reads the effect of the rules on each packet from nfnetlink_log
// ([Observation]), and compares it with a [rules.Outcome]. A [Generator] generates rulesets and
// packets. [Network.Shrink] reduces the ruleset of a failure.
//
// # Observation
//
// A table named "observer" logs each packet when it enters and leaves the hooks prerouting and
// output, and when it enters postrouting. A log entry contains the packet, its mark, its interfaces
// and the owner of its socket. At the end of a hook, the observer also writes fields of the
// conntrack entry into the packet, such as the state, the mark and the zone. The observer drops the
// packet at the end of prerouting, and at postrouting unless the packet continues to lo. Therefore
// no socket receives or answers the packet, and conntrack forgets a new connection. If a packet
// enters a hook and does not leave it, the ruleset has dropped it.
//
// # Packets
//
// Arriving packets are frames that the package writes to the peer of the pod's interface. The
// source address of the frame contains the mark, and the observer copies the mark at ingress. The
// package writes outgoing packets to raw sockets of the pod that have the user, group and mark of
// the packet. Before it sends a packet of an existing connection, it creates the connection with
// netlink. It compares the first log entry of a packet with the [rules.Packet]: a packet that
// differs from its description is an error.
package kerneltest
