package rules

import "fmt"

// A Trace is the path of a packet through a ruleset.
type Trace struct {
	// Passes are the traversed hooks in order: a packet to the host itself is sent and then
	// arrives.
	Passes  []Pass
	Outcome Outcome
	// Alternatives are the other possible outcomes if rules match because of a limit, a random
	// number or a list of unknown contents. Outcome assumes that none of these rules matches.
	Alternatives []Outcome
	// Exhausted names the limit on time or memory that the evaluation reached. If it is not empty,
	// the path is unknown.
	Exhausted string
	// DependsOn names the conditions whose results determine which of Outcome and Alternatives
	// occurs.
	DependsOn []string
	// UnknownAt contains the rules with the unknown expressions that Outcome.Undecided and
	// Outcome.UnknownMarks name: at most ten, and without Step.Stopped. Outcome may also name
	// unknown facts about the host, which no rule contains.
	UnknownAt []Step
	// Uncertain names the random or unknown conditions on which the steps of Passes depend, at most
	// ten. The steps are correct if none of the conditions holds. The outcome may be the same in
	// all cases.
	Uncertain []string
	// Assumed contains the properties of the host on which rules depend and that the packet does
	// not state: the route to its source, and a transparent socket. The evaluation assumes that the
	// route uses the input interface, and that there is no such socket. Each text is a property and
	// its value: "the route to the source uses the input interface: yes".
	Assumed []string
	// Delivery is what routing, or a bridge, does to a packet that tproxy assigned to a listener
	// (Outcome.TProxy).
	Delivery Delivery
}

// A Delivery is what routing, or a bridge, does to a packet that tproxy assigned to a listener. The
// listener receives the packet only if routing delivers it to this host: its destination is a local
// address, or a policy route selects its mark. Otherwise the kernel drops the packet.
type Delivery uint8

// The deliveries.
const (
	DeliveryUnknown Delivery = iota // the routes are not known, or tproxy assigned no packet
	Delivered
	NotDelivered
	// RemovedByBridge means that tproxy assigns the packet inside a bridge, and that the kernel
	// removes the assignment when the bridge passes the packet to its own interface.
	RemovedByBridge
)

// A Pass is the traversal of a hook.
type Pass struct {
	Packet Packet // as it enters the hook
	Steps  []Step
	// Truncated reports that Steps contains only the first steps, because there are too many.
	Truncated bool
	// Notes are effects that no rule causes.
	Notes   []Note
	Outcome Outcome // of this hook
}

// A Note is an effect that no rule causes: the policy of a chain, or a fact of the kernel.
type Note struct {
	Chain  ChainRef
	Before int // the index of the step that follows; the number of steps if none follows
	Text   string
	Drops  bool // the packet is dropped
}

// DroppedWithoutRule returns the note about the policy or the fact that dropped the packet. It
// returns nil if the packet was not dropped, or if a rule dropped it.
func (t *Trace) DroppedWithoutRule() *Note {
	for i := range t.Passes {
		for j := range t.Passes[i].Notes {
			if n := &t.Passes[i].Notes[j]; n.Drops {
				return n
			}
		}
	}
	return nil
}

// String returns the name of the chain and the effect.
func (n Note) String() string {
	return fmt.Sprintf("chain %s %s %s %s", n.Chain.Table.Family, n.Chain.Table.Name,
		n.Chain.Chain.Name, n.Text)
}

// A Step is a rule in the path of a packet: the packet meets the Matches of the rule.
type Step struct {
	ChainRef
	Index int // of the rule in the chain
	// Base is the base chain from which the rule was reached.
	Base *Base
	// Stopped is the action at which the rule ended early, or nil: a tproxy without a listener, a
	// [Require] that the packet does not meet, an [Unknown] whose condition is assumed not to hold,
	// or a use of the conntrack mark of a packet without a connection. The kernel does not report
	// such a rule as a match, except for [TProxyDrop].
	Stopped Action
}

// Rule returns the rule.
func (s Step) Rule() *Rule { return &s.Chain.Rules[s.Index] }

// Number returns the place of the rule in its chain as the kernel counts rules, from 1. Consecutive
// rules with the same handle are one rule of the kernel with a map.
func (s Step) Number() int {
	n := 1
	for i := range s.Index {
		if h := s.Chain.Rules[i].Handle; h == 0 || h != s.Chain.Rules[i+1].Handle {
			n++
		}
	}
	return n
}

// String returns the position and the text of the rule.
func (s Step) String() string {
	return fmt.Sprintf("%s %s %s #%d: %s", s.Table.Family, s.Table.Name, s.Chain.Name, s.Number(),
		s.Rule())
}
