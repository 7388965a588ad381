// Package istio recognises what istio-iptables wrote into a table of iptables, of either kind, so
// that it can be removed without touching a rule of anybody else.
//
// Only a table that has an ISTIO_ chain holds anything of Istio's: these chains, the rules anywhere
// that jump to them, and what istio-iptables writes into the built-in chains. Of the last some have
// a shape that says whose they are (the marks of TPROXY mode). Others do not: "-i eth1 -j RETURN"
// may be anybody's, and counts as Istio's only where it stands as istio-iptables placed it, for an
// interface
//
//   - that is excluded: as "-o eth1 -j RETURN" in OUTPUT too, both directly before Istio's own first rules, in the same order if
//     there are several (in the nat PREROUTING of TPROXY mode, which has no other rule of Istio's, anywhere);
//   - that is rerouted: directly after the rules that send what comes in by it to ISTIO_REDIRECT.
//
// What somebody has moved or put something before stays, and so does a rerouted interface's RETURN
// when no outbound address was captured, because nothing reports that it is Istio's.
package istio

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// ChainPrefix is how the names of Istio's chains begin. Those of ambient mode are no exception.
const ChainPrefix = "ISTIO_"

// Names of iptables' tables and built-in chains that istio-iptables writes to.
const (
	tableNAT    = "nat"
	tableMangle = "mangle"
	prerouting  = "PREROUTING"
	output      = "OUTPUT"

	chainInbound  = ChainPrefix + "INBOUND"
	chainRedirect = ChainPrefix + "REDIRECT"
)

// Remains is what Istio left in a table. The zero value is nothing.
type Remains struct {
	table *rules.Table
	// Chains are the indices of Istio's chains in the table.
	Chains []int
	// Rules are Istio's in other chains, in the order of the table.
	Rules []Position
}

// A Position is that of a rule: the index of its chain in the table, and its own in the chain.
type Position struct{ Chain, Rule int }

// Find recognises what Istio left in a table of iptables, which must be complete: all its chains
// with all their rules in order, and in each rule the counter that iptables gives it.
func Find(t *rules.Table) Remains {
	f := finder{Remains{table: t}}
	for i := range t.Chains {
		if isIstio(&t.Chains[i]) {
			f.Chains = append(f.Chains, i)
		}
	}
	if len(f.Chains) == 0 {
		return Remains{}
	}
	f.jumps()
	if t.Name == tableMangle {
		f.marks()
	}
	if t.Name == tableNAT || t.Name == tableMangle {
		f.excluded()
	}
	if t.Name == tableNAT {
		f.rerouted()
	}
	slices.SortFunc(f.Rules, func(a, b Position) int { return slices.Compare([]int{a.Chain, a.Rule}, []int{b.Chain, b.Rule}) })
	f.Rules = slices.Compact(f.Rules)
	return f.Remains
}

// IsZero reports whether there is nothing.
func (r Remains) IsZero() bool { return len(r.Chains) == 0 }

// Lines names the rules and chains to people, rules first.
func (r Remains) Lines() []string {
	var lines []string
	for _, p := range r.Rules {
		chain := &r.table.Chains[p.Chain]
		rule := chain.Rules[p.Rule]
		rule.Actions = withoutCount(rule.Actions)
		lines = append(lines, fmt.Sprintf("rule %s %s %s: %s", r.table.Family, r.table.Name, chain.Name, &rule))
	}
	for _, i := range r.Chains {
		chain := &r.table.Chains[i]
		plural := "s"
		if len(chain.Rules) == 1 {
			plural = ""
		}
		lines = append(lines, fmt.Sprintf("chain %s %s %s (%d rule%s)", r.table.Family, r.table.Name, chain.Name, len(chain.Rules), plural))
	}
	return lines
}

// isIstio reports whether the chain is one of Istio's. A base chain is not: iptables has no way to
// make one with another name.
func isIstio(c *rules.Chain) bool { return c.Base == nil && strings.HasPrefix(c.Name, ChainPrefix) }

func withoutCount(actions []rules.Action) []rules.Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a rules.Action) bool { return a == rules.Action(rules.Count{}) })
}

// finder collects what is Istio's.
type finder struct{ Remains }

// add takes a rule.
func (f *finder) add(chain, rule int) { f.Rules = append(f.Rules, Position{chain, rule}) }

// taken reports whether the rule has been recognised.
func (f *finder) taken(chain, rule int) bool { return slices.Contains(f.Rules, Position{chain, rule}) }

// base returns the index of a built-in chain, or -1.
func (f *finder) base(name string) int {
	return slices.IndexFunc(f.table.Chains, func(c rules.Chain) bool { return c.Base != nil && c.Name == name })
}

// jumps takes the rules of others' chains that jump to Istio's: no such chain can go before them.
func (f *finder) jumps() {
	for i := range f.table.Chains {
		c := &f.table.Chains[i]
		if isIstio(c) {
			continue
		}
		for j := range c.Rules {
			if strings.HasPrefix(jumpOf(&c.Rules[j]), ChainPrefix) {
				f.add(i, j)
			}
		}
	}
}

// jumpOf is the chain that the rule continues in, or empty.
func jumpOf(r *rules.Rule) string {
	for _, a := range r.Actions {
		if jump, ok := a.(rules.Jump); ok {
			return jump.Chain
		}
	}
	return ""
}
