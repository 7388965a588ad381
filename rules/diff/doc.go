// Package diff evaluates rulesets: for one packet ([Explain]), or for all packets at once, to
// decide whether two rulesets treat every packet alike ([Decide]). The answer of Decide is a proof,
// not a sample; where the rulesets differ it says for which packets, with an example of each kind.
//
//	trace := diff.Explain(&ruleset, packet)
//	result := diff.Decide(diff.Side{Ruleset: a}, diff.Side{Ruleset: b}, diff.Options{})
//
// # One evaluator
//
// What a packet meets is written once (walk.go, chain.go, visit.go, action.go, change.go). It works
// on sets of packets. Explain runs it in the space of one packet, where every match is fulfilled by
// all or by none; Decide in the space of all packets. What the kernel does whatever the rules say
// is in walk.go, view.go and target.go, and named in facts.go with the place in the kernel's source
// (FACTS.md lists them); package compat/kerneltest asks the kernel about each, and compares random
// rulesets and packets with it.
//
// # Sets of packets
//
// A packet is a row of some five hundred bits: 32 of the destination's address, 16 of its port, 8
// of the protocol and so on (field.go, space.go). A set of packets is a binary decision diagram
// over these bits (set.go): a node asks for one bit and leads on to one of two other nodes, until
// the answer is "in" or "not in". The prefix 10.0.0.0/8 is a chain of eight nodes. Equal sets have
// the same number. A family and a hook at which packets enter have a space of their own.
//
// # All packets at once
//
// A rule divides the packets that come to it: those that it matches get its actions, the others go
// to the next rule. What was done to packets is their progress (state.go): target, zone, verdict.
// Packets of equal progress are one flow, whatever their marks: a mark is 32 sets, of each bit the
// packets of which it is 1 (marks.go), so that rules which set marks make no more flows. A chain is
// followed once for each way in which packets come to it, for all packets there could be, however
// often it is jumped to.
//
// # What is not known
//
// A condition that the model has no word for is a variable (variable.go): a bit after those of the
// packet. Chance, as a limit or a random number, is a variable of which both values occur, and a
// fact about the host, such as a route, is one that is the same on both sides. A variable of a rule
// has the same value in the same rule of the other side. An expression that may have an effect ends
// the evaluation for every packet that reaches it, whether or not the rest of its rule matches. The
// answer is "cannot decide" where it depends on such a variable, or on such an expression.
//
// # What is compared
//
// At the end packets are divided by their outcomes (compare.go). Packets of one side and of the
// other that two different outcomes have in common are treated differently, unless the outcomes
// come to the same, as a redirection to where the packet goes anyway. Rare packets, whose interface
// has no address or whose connection was translated before, count only where nothing else differs
// (decide.go). A set that differs is described by boxes (classes.go): one condition for each field.
// Deviations (deviations.go) are found by deciding again without them.
//
// # Budget
//
// The work is near-linear in the rules for all rulesets that programs write. For others it is
// bounded by a [Budget] of time and memory, past which the answer is "cannot decide".
//
// # To change it
//
// A new match is a case in match.go, a new action one in action.go or change.go, and both go into
// the generators of random_test.go and of compat/kerneltest. A new part of a packet is a field; the
// order of the fields decides how large diagrams get, and nothing else.
package diff
