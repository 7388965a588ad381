// Package diff decides whether two rulesets treat every packet alike. [Decide] answers for all packets at once: its answer is a proof,
// not a sample, and where the rulesets differ it says for which packets, with an example of each kind.
//
// # Sets of packets
//
// A packet is a row of some three hundred bits: 32 of the destination's address, 16 of its port, 8 of the protocol and so on
// (field.go, space.go). A set of packets is a decision diagram over these bits (set.go): a node asks for one bit and leads on to one
// of two other nodes, until the answer is "in" or "not in". The prefix 10.0.0.0/8 is a chain of eight nodes. Three rules make this
// work:
//
//   - every way down asks for the bits in the same order, and asks for none that does not matter;
//   - there is one node for each content, so that equal sets have the same number, and comparing them is comparing two numbers;
//   - an operation on two sets goes down both together, and remembers what it has done.
//
// So the union of ten thousand prefixes takes some ten thousand nodes, not 2^300 rows. A family and a hook at which packets enter
// have a space of their own; nothing is shared between spaces.
//
// # All packets at once
//
// A walk (walk.go, visit.go) does what [rules.Ruleset.Explain] does, with sets instead of a packet. It begins with all packets that can
// exist (domain.go). A rule divides the packets that come to it: those that it matches get its actions, the others go to the next
// rule. What was done to packets is their progress (state.go): marks, ports, zone, verdict. Packets of equal progress are united, so
// that there are as many flows of packets as there are different things to do, whatever the number of rules. A mark may be a constant,
// or a copy of what the packet or its connection had; this is kept for each bit (marks.go), so that masks need no special case.
//
// At the end the packets are divided by their fates. Two rulesets are equivalent if no two different fates, one from each side, have a
// packet in common (compare.go). Where two marks are written differently, the packets for which they are equal all the same are
// taken out.
//
// # Words for a set
//
// A set that differs is described by boxes (classes.go): one condition for each field. A box begins with one packet (witness.go); then
// each field in turn is given all values with which the box still has nothing outside the set. What is left of the set has the next
// box. Deviations (deviations.go) are found by deciding again without them.
//
// # To change it
//
// A new match is a case in match.go, a new action one in visit.go, and both go into the generator of random_test.go, which holds every
// decision against Explain. A new part of a packet is a field. The order of the fields decides how large diagrams get, and nothing
// else.
package diff
