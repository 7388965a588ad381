// Package diff evaluates rulesets: for one packet ([Explain]), or for all packets at once, to
// decide whether two rulesets treat every packet alike ([Decide]). The answer of Decide is a proof,
// not a sample. If the rulesets differ, it lists classes of differing packets, with an example of
// each class.
//
//	trace := diff.Explain(&ruleset, packet)
//	result := diff.Decide(diff.Side{Ruleset: a}, diff.Side{Ruleset: b}, diff.Options{})
//
// # One evaluator
//
// The path of packets through a ruleset is evaluated by one piece of code (walk.go, walk_nat.go,
// chain.go, evaluator.go, action.go, change.go), which works on sets of packets. Explain runs it in
// the space of one packet, where a set is full or empty unless it depends on unknowns; Decide runs
// it in the space of all packets. The kernel's behavior that does not depend on the rules is mainly
// in walk.go, walk_nat.go, route.go, view.go and target.go. FACTS.md gives each such behavior a
// name and its place in the kernel's source. A name in parentheses in a comment, such as
// (NATDecidesOnce), is the fact that the code implements. Package compat/kerneltest tests each fact
// with the kernel, and compares the outcomes of random rulesets and packets with the kernel.
//
// # Sets of packets
//
// A packet is a sequence of about 500 bits (IPv4) or 900 bits (IPv6): the bits of the destination
// address, of the port, of the protocol and so on (field.go, space.go). A set of packets is a
// reduced ordered binary decision diagram (BDD) over these bits (set.go): an inner node tests one
// bit and has a successor for each value; the terminal nodes mean "in the set" and "not in the
// set". The prefix 10.0.0.0/8 is a chain of eight nodes. Equal sets are the same node. There is one
// space for each family and each hook at which packets enter.
//
// # All packets at once
//
// A rule divides the packets that reach it: its actions apply to the packets that match, the others
// continue with the next rule. The effect of rules on packets is their progress (state.go): target,
// zone, verdict. Packets with equal progress form one flow, whatever their marks. A mark is
// represented by 32 sets: for each bit, the packets in whose mark the bit is 1 (marks.go).
// Therefore rules that set marks do not create flows. A chain is evaluated once for each progress
// and marks with which packets enter it, for all possible packets, however many jumps lead to it.
//
// # Unknowns
//
// A condition that the model does not support is a variable (variable.go): a bit after the bits of
// the packet. A random match, which matches some packets of each kind but not all, such as limit or
// numgen, is a variable for which both values occur. A fact about the host, such as a route, is a
// variable with the same value on both sides. A variable of a rule has the same value in the same
// rule of the other side. An unsupported match that may have a side effect ends the evaluation of
// every packet that reaches its rule, even if another match fails. An unsupported action that may
// have any effect ends the evaluation of the packets that reach it. Results that depend on an
// unsupported condition, match or action are "cannot decide".
//
// # Comparison
//
// After the evaluation, the packets of each side are divided by their outcomes (compare.go). The
// packets with one outcome on the left side and another outcome on the right side are treated
// differently, unless both outcomes have the same effect: a redirection to the original destination
// has the same effect as no redirection. Rare packets, such as packets whose interface has no
// address or whose connection was translated earlier, are compared only if there are no other
// differences (decide.go). The same applies to packets on a host where only some of several
// listeners exist. A set of differing packets is described by boxes (classes.go): one condition for
// each field. Known deviations (deviations.go) are detected by deciding again without them.
//
// # Budget
//
// The work is near-linear in the number of rules for all rulesets that programs write. A [Budget]
// of time and memory limits the work on other rulesets; if the budget is used up, the result is
// "cannot decide".
//
// # Extending the model
//
// A new match is a case in match.go, a new action one in action.go or change.go. Both are added to
// the generators of random_test.go and of compat/kerneltest. A new part of a packet is a field; the
// order of the fields only affects the size of the diagrams.
package diff
