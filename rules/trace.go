package rules

import (
	"cmp"
	"fmt"
	"slices"
)

// loopback is the interface of the packets that a host sends to itself.
const loopback = "lo"

// ConntrackPriority is where conntrack runs among the chains of a hook (NF_IP_PRI_CONNTRACK):
// earlier chains choose a zone and know no state. Of a chain with this priority and conntrack the
// one that was registered last runs first.
const ConntrackPriority = -200

// A Trace is the way of a packet through a ruleset.
type Trace struct {
	// Passes are the hooks that the packet traverses, in order: a packet to the host itself is sent
	// and then arrives.
	Passes []Pass
	Fate   Fate
	// Alternatives are the fates that the packet may have too: where rules match by a limit or a
	// random number, or by a list that the rules only name. Fate is what becomes of it if none of
	// them matches.
	Alternatives []Fate
	// Exhausted names the limit of the budget that was reached, if one was: then the way is not
	// known.
	Exhausted string
	// DependsOn says what decides between Fate and Alternatives.
	DependsOn []string
}

// A Pass is the traversal of one hook.
type Pass struct {
	Packet Packet // as it enters
	Steps  []Step
	// MoreSteps reports that there are more steps than are listed.
	MoreSteps bool
	// Notes are what no rule decided.
	Notes []Note
	Fate  Fate // of this hook
}

// A Note is something that no rule decided: the policy of a chain, or a fact of the kernel.
type Note struct {
	Chain  ChainRef
	Before int // the index of the step before which it stands; the number of steps for the end
	Text   string
}

// String names the chain and what happened.
func (n Note) String() string {
	return fmt.Sprintf("chain %s %s %s %s", n.Chain.Table.Family, n.Chain.Table.Name, n.Chain.Chain.Name, n.Text)
}

// A Step is a rule that matched.
type Step struct {
	Table *Table
	Chain *Chain
	Index int // of the rule in the chain
	// Base is how the base chain is attached from which the rule was reached.
	Base *Base
	// Stopped is the action at which the rule ended early, or nil: a tproxy that found no listener.
	Stopped Action
}

// Rule is the rule that matched.
func (s Step) Rule() *Rule { return &s.Chain.Rules[s.Index] }

// String names the rule's place and text.
func (s Step) String() string {
	return fmt.Sprintf("%s %s %s #%d: %s", s.Table.Family, s.Table.Name, s.Chain.Name, s.Index+1, s.Rule())
}

// BaseChains returns the base chains at a hook in the order in which the kernel runs them: by
// [Base.Position], then by [Base.Order]. Where these are equal, NAT chains come last, by their
// priorities; other chains keep the order of the ruleset.
func (rs *Ruleset) BaseChains(h Hook) []ChainRef {
	var chains []ChainRef
	for i := range rs.Tables {
		for j := range rs.Tables[i].Chains {
			c := &rs.Tables[i].Chains[j]
			if c.Base != nil && c.Base.Hook == h {
				chains = append(chains, ChainRef{&rs.Tables[i], c})
			}
		}
	}
	slices.SortStableFunc(chains, func(x, y ChainRef) int { return x.Chain.Base.compare(y.Chain.Base) })
	return chains
}

// compare tells which of two chains of a hook runs first: it returns a negative number if b does.
func (b *Base) compare(other *Base) int {
	byPlace := cmp.Or(cmp.Compare(b.Position(), other.Position()), cmp.Compare(b.Order, other.Order))
	switch {
	case byPlace != 0:
		return byPlace
	case b.Type == NAT && other.Type == NAT:
		return cmp.Compare(b.Priority, other.Priority)
	case b.Type == NAT:
		return 1
	case other.Type == NAT:
		return -1
	}
	return 0
}

// ChainRef is a chain and the table it belongs to.
type ChainRef struct {
	Table *Table
	Chain *Chain
}
