package compat

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An Ambiguity is a list of base chains of a hook whose order in the kernel is unknown.
type Ambiguity struct {
	Hook rules.Hook
	// Chains are in the order of BaseChains. The order of some pairs may be known.
	Chains []rules.ChainRef
}

// String returns the hook and the chains.
func (a Ambiguity) String() string {
	names := make([]string, len(a.Chains))
	for i, c := range a.Chains {
		names[i] = fmt.Sprintf("%s %s %s", c.Table.Family, c.Table.Name, c.Chain.Name)
		if c.Table.Comment != "" {
			names[i] += " (" + c.Table.Comment + ")"
		}
	}
	return fmt.Sprintf("hook %s: the order of %s is unknown, because the kernel does not report it",
		a.Hook, strings.Join(names, ", "))
}

// liveHooks are the hooks at which connections are captured, and postrouting, which packets on lo
// traverse between them.
var liveHooks = []rules.Hook{rules.Prerouting, rules.Output, rules.Postrouting}

// orderLive sets the order of the base chains at liveHooks, and returns the ambiguities. The tables
// from index firstLegacy are tables of iptables-legacy.
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
			n := slices.IndexFunc(chains, func(c rules.ChainRef) bool {
				return c.Chain.Base.Position() != position
			})
			if n < 0 {
				n = len(chains)
			}
			p := liveOrder{chains: chains[:n], legacy: legacy, hook: h, hooks: order}
			open := p.arrange()
			if position == rules.ConntrackPriority {
				open = p.arrangeAroundConntrack(open)
			}
			if len(open) > 0 {
				unknown = append(unknown, Ambiguity{h, open})
			}
			chains = chains[n:]
		}
	}
	return unknown
}

// liveOrder sorts the chains at one position.
type liveOrder struct {
	chains []rules.ChainRef
	legacy map[*rules.Table]bool
	hook   rules.Hook
	hooks  hookOrder
	// first contains, by index, the pairs of chains of which the first runs before the second.
	first [][]bool
}

// arrange sets the order of the chains, and returns the chains with rules whose order is unknown.
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
		if p.isAmbiguous(next) {
			open = append(open, c)
		}
	}
	return open
}

// arrangeAroundConntrack makes the order of sorted chains negative before conntrack and positive
// after it. If this is unknown for one of them, it sets all orders to 0 and returns the chains
// whose order then matters; otherwise it returns open.
func (p *liveOrder) arrangeAroundConntrack(open []rules.ChainRef) []rules.ChainRef {
	before, known := 0, true
	for _, c := range p.chains {
		switch p.hooks.sideOfConntrack(p.hook, p.id(c)) {
		case -1:
			before++
		case 0:
			known = false
		}
	}
	for _, c := range p.chains {
		b := c.Chain.Base
		switch {
		case !known:
			b.Order = 0
		case b.Order < before:
			b.Order -= before
		default:
			b.Order += 1 - before
		}
	}
	if known || len(p.chains) < 2 {
		return open
	}
	open = slices.DeleteFunc(slices.Clone(p.chains), func(c rules.ChainRef) bool {
		return !hasEffect(c)
	})
	if len(open) < 2 {
		return nil
	}
	return open
}

// compareAll compares all pairs of chains.
func (p *liveOrder) compareAll() {
	n := len(p.chains)
	p.first = make([][]bool, n)
	for i := range p.first {
		p.first[i] = make([]bool, n)
		for j := range p.first[i] {
			p.first[i][j] = i != j && p.runsFirst(p.chains[i], p.chains[j])
		}
	}
	// The relation is transitive.
	for k := range n {
		for i := range n {
			for j := range n {
				p.first[i][j] = p.first[i][j] || p.first[i][k] && p.first[k][j]
			}
		}
	}
}

// next returns the first remaining chain that no other remaining chain precedes.
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

// isAmbiguous reports whether the chain has rules and its order relative to another chain with
// rules is unknown.
func (p *liveOrder) isAmbiguous(i int) bool {
	for j := range p.chains {
		isUnordered := j != i && p.first[i][j] == p.first[j][i] &&
			meetSamePackets(p.chains[i], p.chains[j])
		if isUnordered && hasEffect(p.chains[i]) && hasEffect(p.chains[j]) {
			return true
		}
	}
	return false
}

// meetSamePackets reports whether a packet can traverse both chains.
func meetSamePackets(a, b rules.ChainRef) bool {
	return a.Table.Family == rules.Inet || b.Table.Family == rules.Inet ||
		a.Table.Family == b.Table.Family
}

// hasEffect reports whether the chain has an effect on packets.
func hasEffect(c rules.ChainRef) bool { return len(c.Chain.Rules) > 0 || c.Chain.Base.Drop }

// runsFirst reports whether a is known to run before b.
func (p *liveOrder) runsFirst(a, b rules.ChainRef) bool {
	x, y := a.Chain.Base, b.Chain.Base
	switch bothNAT := x.Type == rules.NAT && y.Type == rules.NAT; {
	case bothNAT && x.Priority != y.Priority:
		return x.Priority < y.Priority
	case a.Table == b.Table && (bothNAT || x.Type != rules.NAT && y.Type != rules.NAT):
		// A table lists its chains in the order of their creation, and the last one runs first.
		return indexOf(a) > indexOf(b)
	}
	return p.hooks.before(p.hook, p.id(a), p.id(b))
}

// indexOf returns the index of the chain in its table.
func indexOf(c rules.ChainRef) int {
	for i := range c.Table.Chains {
		if &c.Table.Chains[i] == c.Chain {
			return i
		}
	}
	return -1
}

// id returns the entry of the kernel's list of hooks for a chain.
func (p *liveOrder) id(c rules.ChainRef) chainID {
	id := chainID{family: c.Table.Family, table: c.Table.Name, nat: c.Chain.Base.Type == rules.NAT}
	if !p.legacy[c.Table] {
		id.chain = c.Chain.Name
	}
	return id
}
