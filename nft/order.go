package nft

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// orderChains sets the order of base chains where that of the ruleset is not the kernel's: a table
// lists its chains in the order in which they were made, and the kernel runs first the one made
// last.
func orderChains(rs *rules.Ruleset) {
	for h := range hookNumbers {
		for chains := rs.BaseChains(rules.Hook(h)); len(chains) > 0; {
			n := slices.IndexFunc(chains, func(c rules.ChainRef) bool { return c.Chain.Base.Position() != chains[0].Chain.Base.Position() })
			if n < 0 {
				n = len(chains)
			}
			orderPlace(chains[:n])
			chains = chains[n:]
		}
	}
}

// orderPlace sets the order of the chains of one place, if a table has several at one priority.
func orderPlace(chains []rules.ChainRef) {
	changed := false
	for from := 0; from < len(chains); {
		to := from + 1
		for to < len(chains) && alike(chains[from], chains[to]) {
			to++
		}
		slices.Reverse(chains[from:to])
		changed = changed || to > from+1
		from = to
	}
	if !changed || chains[0].Chain.Base.Position() == rules.ConntrackPriority { // where a number would say more than is known
		return
	}
	for i, c := range chains {
		c.Chain.Base.Order = i
	}
}

// alike reports whether nothing but the time when they were made orders two chains of a table.
func alike(a, b rules.ChainRef) bool {
	x, y := a.Chain.Base, b.Chain.Base
	return a.Table == b.Table && x.Priority == y.Priority && (x.Type == rules.NAT) == (y.Type == rules.NAT)
}
