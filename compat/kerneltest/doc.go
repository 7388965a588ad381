// Package kerneltest compares the model of package rules with the kernel. It makes a network of
// namespaces (Network), loads rulesets there with the programs that users have (Ruleset), sends
// packets through them, reads from nfnetlink_log what the kernel did to each packet (Observation),
// and compares that with a [rules.Fate]. Generator draws rulesets and packets, Shrink makes a
// failure small.
//
// # Observation
//
// A table named "witness" logs each packet where it enters and leaves the hooks prerouting and
// output, and where it enters postrouting. A log entry has the packet with its mark, device and
// socket, and its conntrack entry with mark, zone and tuples. At the end of prerouting, and at
// postrouting unless the packet goes on to lo, the witness drops the packet. So no socket
// receives it, nobody answers, and conntrack forgets a new connection. A packet that enters a hook
// and does not leave it was dropped by the ruleset.
//
// # Packets
//
// Packets that arrive are frames written to the other end of the pod's interface, with the mark in
// the source address of the frame, from where the witness copies it at ingress. Packets that the
// pod sends are written to raw sockets of the user, group and mark. Connections in other states
// than new are made by netlink. What the witness logs where the packet enters its hook is compared
// with the [rules.Packet], so that a packet that differs from its description is an error.
package kerneltest
