// Package kerneltest compares the model of package rules with the kernel. A [Network] consists of
// two network namespaces, a pod and its peer. nft, iptables-restore and ip6tables-restore load a
// [Ruleset] into the pod. The package sends packets, reads the effect of the rules on each packet
// from nfnetlink_log ([Observation]), and compares the effect with a [rules.Outcome]. A [Generator]
// generates rulesets and packets. [Network.Shrink] reduces the ruleset of a failure.
//
// # Observation
//
// The tables named "observer" log each packet when it enters and when it leaves the hooks
// prerouting, output and postrouting, except when it leaves postrouting by lo. A log entry contains
// the packet, its mark, its interfaces and the owner of its socket. At the end of a hook, the
// observer also writes fields of the conntrack entry into the packet, such as the state, the mark
// and the zone. The observer drops the packet at the end of prerouting, and at the end of
// postrouting unless the packet leaves by lo. Therefore no socket receives or answers the packet,
// and conntrack forgets a new connection unless its packet left by lo. If a packet enters a hook
// and does not leave it, the ruleset has dropped the packet.
//
// # Packets
//
// Arriving packets are frames that the package writes to the peer of the pod's interface. The
// source address of the frame contains the mark, which the observer copies to the packet at
// ingress. The package writes outgoing packets to raw sockets of the pod that have the user, group
// and mark of the packet. An outgoing packet without a socket is a copy of an arriving packet,
// which the observer sends. Before the package sends a packet of an existing connection, it creates
// the connection with netlink. A packet whose first log entry differs from its [rules.Packet] is an
// error.
package kerneltest
