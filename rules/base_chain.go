package rules

import (
	"cmp"
	"slices"
)

// ConntrackPriority is the priority of conntrack (NF_IP_PRI_CONNTRACK). Chains that run earlier can
// assign a zone, but do not know states. Of conntrack and a chain with the same priority, the one
// that was registered last runs first.
const ConntrackPriority = -200

// A ChainRef is a chain and its table.
type ChainRef struct {
	Table *Table
	Chain *Chain
}

// BaseChains returns the base chains at a hook in the order of the kernel: by [Base.Position], then
// by [Base.Order]. At equal values NAT chains are last, by their priorities; other chains keep the
// order of the ruleset.
func (rs *Ruleset) BaseChains(h Hook) []ChainRef {
	var chains []ChainRef
	for t, c := range rs.AllChains() {
		if c.Base != nil && c.Base.Hook == h {
			chains = append(chains, ChainRef{t, c})
		}
	}
	slices.SortStableFunc(chains, func(x, y ChainRef) int {
		return x.Chain.Base.compare(y.Chain.Base)
	})
	return chains
}

// compare returns a negative number if b runs before other, and a positive number if it runs after
// other.
func (b *Base) compare(other *Base) int {
	natLast := 0
	switch {
	case b.Type == NAT && other.Type != NAT:
		natLast = 1
	case b.Type != NAT && other.Type == NAT:
		natLast = -1
	}
	// At equal positions, only the priorities of NAT chains can differ.
	return cmp.Or(cmp.Compare(b.Position(), other.Position()), cmp.Compare(b.Order, other.Order),
		natLast, cmp.Compare(b.Priority, other.Priority))
}

// HasEffect reports whether the base chain has rules or drops packets by its policy.
func (c *Chain) HasEffect() bool { return len(c.Rules) > 0 || c.Base.Drop }

// OrderMatters reports whether it may matter which of two base chains of a hook runs first: a
// packet can traverse both, and each affects packets or the other chain. A NAT chain without rules
// affects chains of other types: the kernel translates packets of earlier connections.
func (c ChainRef) OrderMatters(other ChainRef) bool {
	samePackets := c.Table.Family == Inet || other.Table.Family == Inet ||
		c.Table.Family == other.Table.Family
	isNAT, isOtherNAT := c.Chain.Base.Type == NAT, other.Chain.Base.Type == NAT
	return samePackets && (c.Chain.HasEffect() || isNAT && !isOtherNAT) &&
		(other.Chain.HasEffect() || isOtherNAT && !isNAT)
}
