package compat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An Ambiguity is base chains at one place of a hook of which it is not known in which order the kernel runs them.
type Ambiguity struct {
	Hook rules.Hook
	// Chains are in the order in which BaseChains has them. Of some pairs the order may be known.
	Chains []rules.ChainRef
}

// String names the hook and the chains.
func (a Ambiguity) String() string {
	names := make([]string, len(a.Chains))
	for i, c := range a.Chains {
		names[i] = fmt.Sprintf("%s %s %s", c.Table.Family, c.Table.Name, c.Chain.Name)
		if c.Table.Comment != "" {
			names[i] += " (" + c.Table.Comment + ")"
		}
	}
	return fmt.Sprintf("hook %s: which comes first of %s is not known, since the kernel does not tell", a.Hook, strings.Join(names, ", "))
}

// liveHooks are those at which connections are captured.
var liveHooks = []rules.Hook{rules.Prerouting, rules.Output}

// orderLive sets the order of the base chains at these hooks, and returns what of it is not known. The tables from the index on are those
// of iptables-legacy.
func orderLive(rs *rules.Ruleset, firstLegacy int, order hookOrder) []Ambiguity {
	for i := range rs.Tables {
		for j := range rs.Tables[i].Chains {
			if b := rs.Tables[i].Chains[j].Base; b != nil {
				b.Order = 0
			}
		}
	}
	legacy := map[*rules.Table]bool{}
	for i := firstLegacy; i < len(rs.Tables); i++ {
		legacy[&rs.Tables[i]] = true
	}
	var unknown []Ambiguity
	for _, h := range liveHooks {
		for chains := rs.BaseChains(h); len(chains) > 0; {
			position := chains[0].Chain.Base.Position()
			n := slices.IndexFunc(chains, func(c rules.ChainRef) bool { return c.Chain.Base.Position() != position })
			if n < 0 {
				n = len(chains)
			}
			p := liveOrder{chains: chains[:n], legacy: legacy, hook: h, hooks: order}
			if open := p.arrange(); len(open) > 0 {
				unknown = append(unknown, Ambiguity{h, open})
			}
			chains = chains[n:]
		}
	}
	return unknown
}

// liveOrder arranges the chains of one place.
type liveOrder struct {
	chains []rules.ChainRef
	legacy map[*rules.Table]bool
	hook   rules.Hook
	hooks  hookOrder
	// first tells of two chains, by their indices, that the one runs before the other.
	first [][]bool
}

// arrange sets the order of the chains, and returns those with rules of which it is not known.
func (p *liveOrder) arrange() []rules.ChainRef {
	if len(p.chains) < 2 {
		return nil
	}
	p.compareAll()
	var open []rules.ChainRef
	for placed, order := make([]bool, len(p.chains)), 0; order < len(p.chains); order++ {
		next := p.next(placed)
		placed[next] = true
		c := p.chains[next]
		c.Chain.Base.Order = order
		if p.isOpen(next) {
			open = append(open, c)
		}
	}
	return open
}

// compareAll finds out about all pairs.
func (p *liveOrder) compareAll() {
	n := len(p.chains)
	p.first = make([][]bool, n)
	for i := range p.first {
		p.first[i] = make([]bool, n)
		for j := range p.first[i] {
			p.first[i][j] = i != j && p.runsFirst(p.chains[i], p.chains[j])
		}
	}
	// What runs before one that runs before a third runs before that.
	for k := range n {
		for i := range n {
			for j := range n {
				p.first[i][j] = p.first[i][j] || p.first[i][k] && p.first[k][j]
			}
		}
	}
}

// next is the first chain that is not placed yet, and behind no other such.
func (p *liveOrder) next(placed []bool) int {
	free := func(i int) bool {
		for j := range p.chains {
			if !placed[j] && j != i && p.first[j][i] {
				return false
			}
		}
		return !placed[i]
	}
	for i := range p.chains {
		if free(i) {
			return i
		}
	}
	return slices.Index(placed, false)
}

// isOpen tells whether the chain has rules, and another has some that may run before it or behind it.
func (p *liveOrder) isOpen(i int) bool {
	for j := range p.chains {
		if j != i && p.first[i][j] == p.first[j][i] && meet(p.chains[i], p.chains[j]) && acts(p.chains[i]) && acts(p.chains[j]) {
			return true
		}
	}
	return false
}

// meet tells whether a packet can pass both chains.
func meet(a, b rules.ChainRef) bool {
	return a.Table.Family == rules.Inet || b.Table.Family == rules.Inet || a.Table.Family == b.Table.Family
}

// acts tells whether the chain does something to packets.
func acts(c rules.ChainRef) bool { return len(c.Chain.Rules) > 0 || c.Chain.Base.Drop }

// runsFirst tells whether a is known to run before b.
func (p *liveOrder) runsFirst(a, b rules.ChainRef) bool {
	x, y := a.Chain.Base, b.Chain.Base
	switch bothNAT := x.Type == rules.NAT && y.Type == rules.NAT; {
	case bothNAT && x.Priority != y.Priority:
		return x.Priority < y.Priority
	case a.Table == b.Table && (bothNAT || x.Type != rules.NAT && y.Type != rules.NAT):
		// A table lists its chains in the order in which they were made, and the one made last runs first.
		return indexOf(a) > indexOf(b)
	}
	return p.hooks.before(p.hook, p.id(a), p.id(b))
}

// indexOf is the chain's place in its table.
func indexOf(c rules.ChainRef) int {
	for i := range c.Table.Chains {
		if &c.Table.Chains[i] == c.Chain {
			return i
		}
	}
	return -1
}

// id is what the kernel's list of hooks has for a chain.
func (p *liveOrder) id(c rules.ChainRef) chainID {
	id := chainID{family: c.Table.Family, table: c.Table.Name, nat: c.Chain.Base.Type == rules.NAT}
	if !p.legacy[c.Table] {
		id.chain = c.Chain.Name
	}
	return id
}
