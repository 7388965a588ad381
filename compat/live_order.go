package compat

import (
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An Ambiguity is a list of base chains of a hook. Their order in the kernel is unknown.
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

// liveHooks are the hooks at which connections are captured, and postrouting, which a packet on lo
// traverses between output and prerouting.
var liveHooks = []rules.Hook{rules.Prerouting, rules.Output, rules.Postrouting}

// orderLive sets the order of the base chains at liveHooks, and returns the ambiguities. The tables
// from index firstLegacy are tables of iptables-legacy.
func orderLive(rs *rules.Ruleset, firstLegacy int, order hookOrder) []Ambiguity {
	for _, c := range rs.AllChains() {
		if c.Base != nil {
			c.Base.Order = 0
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
			unordered := p.arrange()
			if position == rules.ConntrackPriority {
				unordered = p.arrangeAroundConntrack(unordered)
			}
			if len(unordered) > 0 {
				unknown = append(unknown, Ambiguity{h, unordered})
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
	// following contains a bit set for each chain, with the chains that are known to run after it.
	following []big.Int
}

// arrange sets the order of the chains, and returns the chains for which isAmbiguous returns true.
func (p *liveOrder) arrange() []rules.ChainRef {
	if len(p.chains) < 2 {
		return nil
	}
	p.compareAll()
	var unordered []rules.ChainRef
	for order, next := range p.sortIndexes() {
		c := p.chains[next]
		c.Chain.Base.Order = order
		if p.isAmbiguous(next) {
			unordered = append(unordered, c)
		}
	}
	return unordered
}

// arrangeAroundConntrack makes the Order of sorted chains negative for chains before conntrack, and
// positive for chains after conntrack, and returns unordered unchanged. If it is unknown on which
// side of conntrack a chain runs, arrangeAroundConntrack sets all orders to 0, and returns the
// chains for which HasEffect returns true, if there are at least two.
func (p *liveOrder) arrangeAroundConntrack(unordered []rules.ChainRef) []rules.ChainRef {
	before, known := 0, true
	for _, c := range p.chains {
		switch p.hooks.sideOfConntrack(p.hook, p.chainIDOf(c)) {
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
		return unordered
	}
	unordered = slices.DeleteFunc(slices.Clone(p.chains), func(c rules.ChainRef) bool {
		return !c.Chain.HasEffect()
	})
	if len(unordered) < 2 {
		return nil
	}
	return unordered
}

// compareAll compares all pairs of chains. It uses bit sets, because a hook may have a thousand
// chains.
func (p *liveOrder) compareAll() {
	n := len(p.chains)
	positions := p.positions()
	p.following = make([]big.Int, n)
	for i := range n {
		for j := range n {
			if i != j && p.isKnownBefore(i, j, positions) {
				p.following[i].SetBit(&p.following[i], j, 1)
			}
		}
	}
	// The relation is transitive.
	for k := range n {
		for i := range n {
			if p.runsBefore(i, k) {
				p.following[i].Or(&p.following[i], &p.following[k])
			}
		}
	}
}

// runsBefore reports whether the first chain is known to run before the second.
func (p *liveOrder) runsBefore(i, j int) bool { return p.following[i].Bit(j) == 1 }

// sortIndexes returns the indexes of the chains in their order. The next chain is the first
// remaining chain that no other remaining chain precedes or, if the order has a cycle, the first
// remaining chain.
func (p *liveOrder) sortIndexes() []int {
	n := len(p.chains)
	preceding := make([]int, n) // for each chain, the number of remaining chains that precede it
	for i := range n {
		for j := range n {
			if i != j && p.runsBefore(i, j) {
				preceding[j]++
			}
		}
	}
	remaining := make([]int, n)
	for i := range remaining {
		remaining[i] = i
	}
	order := make([]int, 0, n)
	for len(remaining) > 0 {
		at := max(0, slices.IndexFunc(remaining, func(i int) bool { return preceding[i] == 0 }))
		next := remaining[at]
		remaining = slices.Delete(remaining, at, at+1)
		order = append(order, next)
		for _, i := range remaining {
			if p.runsBefore(next, i) {
				preceding[i]--
			}
		}
	}
	return order
}

// isAmbiguous reports whether the chain's order relative to another chain is unknown and may
// matter.
func (p *liveOrder) isAmbiguous(i int) bool {
	for j := range p.chains {
		if j != i && p.runsBefore(i, j) == p.runsBefore(j, i) &&
			p.chains[i].OrderMatters(p.chains[j]) {
			return true
		}
	}
	return false
}

// A chainPosition is the position of a chain in its table and in the kernel's lists of hook
// functions.
type chainPosition struct {
	index  int // in its table
	inList [2]struct {
		position int
		ok       bool
	} // by family
}

// positions returns the positions of the chains.
func (p *liveOrder) positions() []chainPosition {
	indexes := map[*rules.Table]map[*rules.Chain]int{}
	positions := make([]chainPosition, len(p.chains))
	for i, c := range p.chains {
		if indexes[c.Table] == nil {
			indexes[c.Table] = make(map[*rules.Chain]int, len(c.Table.Chains))
			for j := range c.Table.Chains {
				indexes[c.Table][&c.Table.Chains[j]] = j
			}
		}
		position := &positions[i]
		position.index = indexes[c.Table][c.Chain]
		for k, f := range []rules.Family{rules.IPv4, rules.IPv6} {
			in := &position.inList[k]
			in.position, in.ok = p.hooks.position(f, p.hook, p.chainIDOf(c))
		}
	}
	return positions
}

// isKnownBefore reports whether the kernel's data show that chain i runs before chain j. It does
// not consider transitivity.
func (p *liveOrder) isKnownBefore(i, j int, positions []chainPosition) bool {
	a, b := p.chains[i], p.chains[j]
	x, y := a.Chain.Base, b.Chain.Base
	switch bothNAT := x.Type == rules.NAT && y.Type == rules.NAT; {
	case bothNAT && x.Priority != y.Priority:
		return x.Priority < y.Priority
	case a.Table == b.Table && (bothNAT || x.Type != rules.NAT && y.Type != rules.NAT):
		// A table lists its chains in the order of their creation. The chain created last runs
		// first.
		return positions[i].index > positions[j].index
	}
	for family, first := range positions[i].inList {
		second := positions[j].inList[family]
		if first.ok && second.ok && first.position < second.position {
			return true
		}
	}
	return false
}

// chainIDOf returns the ID of the chain in hookOrder.
func (p *liveOrder) chainIDOf(c rules.ChainRef) chainID {
	id := chainID{family: c.Table.Family, table: c.Table.Name, nat: c.Chain.Base.Type == rules.NAT}
	if !p.legacy[c.Table] {
		id.chain = c.Chain.Name
	}
	return id
}
