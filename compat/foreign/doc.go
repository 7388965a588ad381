// Package foreign determines the effect of foreign rules in a network namespace on the traffic that
// Sluice's ruleset captures: the packets that bypass the proxy, the rule that decides this, and the
// owner of the rule.
//
// The package uses [diff.Bypass] to compare the ruleset alone with all live rules of the namespace,
// in all backends and tables. It compares them for all packets that the ruleset captures, for the
// later packets of their connections, and for packets that the rules send to a destination that the
// ruleset captures. A foreign rule that drops packets or captures more packets is not a bypass. If
// the effect cannot be decided, it is unknown, and the result contains the reason. A foreign rule
// at input that may change packets, such as one that writes a port, makes the effect unknown. So do
// ports of bridges, in which the kernel removes the assignment to a transparent listener.
//
// A set whose elements may expire may have any members, because the kernel deletes elements without
// an event: the effect remains true until the rules change.
package foreign
