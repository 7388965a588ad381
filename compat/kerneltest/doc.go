// Package kerneltest compares the model of package rules with the kernel. It creates a network of
// namespaces (Network), loads rulesets with the usual programs (Ruleset), sends packets, reads from
// nfnetlink_log what the kernel did with each packet (Observation), and compares that with a
// [rules.Outcome]. Generator generates rulesets and packets, Shrink reduces a failure.
//
// # Observation
//
// A table named "observer" logs each packet when it enters and leaves the hooks prerouting and
// output, and when it enters postrouting. A log entry contains the packet with its mark, device and
// socket, and its conntrack entry with mark, zone and tuples. At the end of prerouting, and at
// postrouting unless the packet goes on to lo, the observer drops the packet, so that no socket
// receives it, nothing answers it, and conntrack forgets a new connection. If a packet enters a
// hook and does not leave it, the ruleset has dropped it.
//
// # Packets
//
// Arriving packets are frames that are written to the peer of the pod's interface. Their mark is in
// the source address of the frame, from which the observer copies it at ingress. Packets that the
// pod sends are written to raw sockets with the user, group and mark. Connections in states other
// than new are created with netlink. The log entry at the entry of the packet's hook is compared
// with the [rules.Packet], so that a packet that differs from its description is an error.
package kerneltest
