package nft

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// orderChains sets Base.Order of the base chains at each position where a table has several chains
// of equal priority. The kernel lists the chains of a table in the order of their creation, but
// calls chains of equal priority in the reverse order.
func orderChains(rs *rules.Ruleset) {
	for h := range rules.Ingress + 1 {
		for chains := rs.BaseChains(h); len(chains) > 0; {
			end := slices.IndexFunc(chains, func(c rules.ChainRef) bool {
				return c.Chain.Base.Position() != chains[0].Chain.Base.Position()
			})
			if end < 0 {
				end = len(chains)
			}
			orderChainsAt(chains[:end])
			chains = chains[end:]
		}
	}
}

// orderChainsAt sets Base.Order of the chains at one position if a table has several chains there.
func orderChainsAt(chains []rules.ChainRef) {
	changed := false
	for from := 0; from < len(chains); {
		end := from + 1
		for end < len(chains) && isListedInReverse(chains[from], chains[end]) {
			end++
		}
		slices.Reverse(chains[from:end])
		changed = changed || end > from+1
		from = end
	}
	// At the priority of conntrack, Order would also specify the order of the chain and conntrack,
	// which is unknown.
	if !changed || chains[0].Chain.Base.Position() == rules.ConntrackPriority {
		return
	}
	for i, c := range chains {
		c.Chain.Base.Order = i
	}
}

// isListedInReverse reports whether the kernel calls two chains in the reverse of the listed order:
// they belong to one table, have equal priority, and both or neither of them are NAT chains.
func isListedInReverse(a, b rules.ChainRef) bool {
	x, y := a.Chain.Base, b.Chain.Base
	return a.Table == b.Table && x.Priority == y.Priority &&
		(x.Type == rules.NAT) == (y.Type == rules.NAT)
}
