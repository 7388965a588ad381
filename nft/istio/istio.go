// Package istio identifies the rules and chains of istio-iptables in a table of iptables-legacy or
// iptables-nft, so that they can be removed without changing foreign rules.
//
// A table contains rules of Istio only if it has a chain with the prefix ISTIO_. The package finds
// these chains, all rules that jump to them, and the rules of istio-iptables in the built-in
// chains. It identifies the rules for the marks of TPROXY mode by their matches and actions. A rule
// such as "-i eth1 -j RETURN" is ambiguous: it is identified as Istio's only at the position where
// istio-iptables adds it:
//
//   - For an excluded interface (--istio-exclude-interfaces), "-o eth1 -j RETURN" must exist in
//     OUTPUT too. Both rules must directly precede Istio's first rules, in the same order if there
//     are several interfaces. In TPROXY mode, the nat PREROUTING chain has no other rules of Istio:
//     there, the rules for excluded interfaces may be at any position.
//   - For a rerouted interface (--kube-virt-interfaces), the rule must directly follow the rules
//     that send packets of the interface to ISTIO_REDIRECT.
//
// An ambiguous rule of Istio at any other position is not identified. At most 256 excluded
// interfaces are identified. The RETURN rule of a rerouted interface is not identified if Istio
// captures no outbound address, because then no rule sends packets of the interface to
// ISTIO_REDIRECT.
package istio

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// ChainPrefix is the prefix of the names of Istio's chains, also in ambient mode.
const ChainPrefix = "ISTIO_"

// Names of tables, of built-in chains and of Istio's chains.
const (
	tableNAT    = "nat"
	tableMangle = "mangle"
	prerouting  = "PREROUTING"
	output      = "OUTPUT"

	chainInbound  = ChainPrefix + "INBOUND"
	chainRedirect = ChainPrefix + "REDIRECT"
)

// Leftovers lists the rules and chains of Istio in a table. The zero value is an empty list.
type Leftovers struct {
	table *rules.Table
	// Chains contains the indexes of Istio's chains in the table.
	Chains []int
	// Rules contains the positions of Istio's rules in other chains, in the order of the table.
	Rules []Position
}

// A Position is the index of a chain in the table and the index of a rule in the chain.
type Position struct{ Chain, Rule int }

// Find returns the rules and chains of Istio in a table of iptables. The table must be complete:
// all chains with all rules in order, and in each rule the counter of iptables.
func Find(t *rules.Table) Leftovers {
	f := finder{Leftovers{table: t}, map[Position]bool{}}
	for i := range t.Chains {
		if isIstio(&t.Chains[i]) {
			f.Chains = append(f.Chains, i)
		}
	}
	if len(f.Chains) == 0 {
		return Leftovers{}
	}
	f.addJumps()
	if t.Name == tableMangle {
		f.addMarks()
	}
	if t.Name == tableNAT || t.Name == tableMangle {
		f.addExcluded()
	}
	if t.Name == tableNAT {
		f.addRerouted()
	}
	slices.SortFunc(f.Rules, func(a, b Position) int {
		return slices.Compare([]int{a.Chain, a.Rule}, []int{b.Chain, b.Rule})
	})
	return f.Leftovers
}

// IsZero reports whether the table has no rules and no chains of Istio.
func (l Leftovers) IsZero() bool { return len(l.Chains) == 0 }

// Lines returns a description of each rule and each chain, rules first.
func (l Leftovers) Lines() []string {
	var lines []string
	for _, p := range l.Rules {
		chain := &l.table.Chains[p.Chain]
		rule := chain.Rules[p.Rule]
		rule.Actions = rules.WithoutCount(rule.Actions)
		lines = append(lines,
			fmt.Sprintf("rule %s %s %s: %s", l.table.Family, l.table.Name, chain.Name, &rule))
	}
	for _, i := range l.Chains {
		chain := &l.table.Chains[i]
		plural := "s"
		if len(chain.Rules) == 1 {
			plural = ""
		}
		lines = append(lines, fmt.Sprintf("chain %s %s %s (%d rule%s)",
			l.table.Family, l.table.Name, chain.Name, len(chain.Rules), plural))
	}
	return lines
}

// isIstio reports whether the chain is a chain of Istio. iptables cannot create base chains with
// this prefix.
func isIstio(c *rules.Chain) bool { return c.Base == nil && strings.HasPrefix(c.Name, ChainPrefix) }

// finder collects the rules and chains of Istio.
type finder struct {
	Leftovers
	added map[Position]bool // the elements of Rules
}

// add adds a rule.
func (f *finder) add(chain, rule int) {
	p := Position{chain, rule}
	if !f.added[p] {
		f.added[p] = true
		f.Rules = append(f.Rules, p)
	}
}

// has reports whether the rule was added.
func (f *finder) has(chain, rule int) bool { return f.added[Position{chain, rule}] }

// base returns the index of a built-in chain, or -1.
func (f *finder) base(name string) int {
	return slices.IndexFunc(f.table.Chains, func(c rules.Chain) bool {
		return c.Base != nil && c.Name == name
	})
}

// addJumps adds the rules of other chains that jump to Istio's chains. These rules must be removed
// before the chains.
func (f *finder) addJumps() {
	for i := range f.table.Chains {
		c := &f.table.Chains[i]
		if isIstio(c) {
			continue
		}
		for j := range c.Rules {
			if strings.HasPrefix(jumpTarget(&c.Rules[j]), ChainPrefix) {
				f.add(i, j)
			}
		}
	}
}

// jumpTarget returns the chain that the rule jumps to, or "".
func jumpTarget(r *rules.Rule) string {
	for _, a := range r.Actions {
		if jump, ok := a.(rules.Jump); ok {
			return jump.Chain
		}
	}
	return ""
}
