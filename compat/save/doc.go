// Package save reads and writes rules as text in the format of iptables-save(8) and iptables-restore(8), and reads the log of an
// istio-init container, which holds such text. It is pure: text in, the model out, and the other way round.
//
// A rule becomes what it does. What the model has no word for is [rules.Unknown] with exactly the words that say it, never a
// guess: other matches and targets, marks of which bits are flipped, and names of users, services or hosts, since nothing is
// looked up. REJECT is among them: the packet goes no further, but its sender learns that, and the model has no word for the
// answer. LOG, NFLOG, TRACE and ULOG change nothing about a packet, so that such a rule only counts.
//
// Text that iptables-restore would refuse is a [SyntaxError].
package save
