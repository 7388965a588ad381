package foreign

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// maxOrders is the maximum number of chain orders to evaluate. It is enough for three ambiguous
// pairs (2³) or one ambiguous triple (3!).
const maxOrders = 8

// ordersOf returns a function for each permutation of the ambiguous base chains. Each function sets
// its permutation in the ruleset. The last function sets the present order. ordersOf returns false
// if there are more orders than maxOrders, or if chains at the position of conntrack are ambiguous.
//
// Some of the orders may be impossible, because ordersOf also permutes pairs whose order is known.
// This is safe: an additional order can only make the effect unknown.
func ordersOf(ambiguous []compat.Ambiguity) ([]func(), bool) {
	orders := []func(){func() {}}
	for _, a := range ambiguous {
		if a.Chains[0].Chain.Base.Position() == rules.ConntrackPriority {
			// All chains of an ambiguity have the same position. At the position of conntrack, it
			// may also be unknown which chains run before conntrack.
			return nil, false
		}
		var present []int
		for _, c := range a.Chains {
			present = append(present, c.Chain.Base.Order)
		}
		var extended []func()
		for _, p := range permutations(len(a.Chains), maxOrders) {
			for _, applyPrevious := range orders {
				extended = append(extended, func() {
					applyPrevious()
					for i, c := range a.Chains {
						c.Chain.Base.Order = present[p[i]]
					}
				})
			}
		}
		if orders = extended; len(orders) == 0 || len(orders) > maxOrders {
			return nil, false
		}
	}
	return orders, true
}

// ofFamily returns the ambiguities of the chains that packets of the family traverse.
func ofFamily(ambiguous []compat.Ambiguity, f rules.Family) []compat.Ambiguity {
	return withoutChains(ambiguous, func(c rules.ChainRef) bool {
		return c.Table.Family != f && c.Table.Family != rules.Inet
	})
}

// withoutChains removes the excluded chains from the ambiguities, and returns the ambiguities that
// still have several chains.
func withoutChains(
	ambiguous []compat.Ambiguity, isExcluded func(rules.ChainRef) bool,
) []compat.Ambiguity {
	var found []compat.Ambiguity
	for _, a := range ambiguous {
		a.Chains = slices.DeleteFunc(slices.Clone(a.Chains), isExcluded)
		if len(a.Chains) > 1 {
			found = append(found, a)
		}
	}
	return found
}

// permutations returns all permutations of n elements, or nil if there are more than the limit. The
// last permutation is the identity.
func permutations(n, limit int) [][]int {
	found := [][]int{{}}
	for i := range n {
		var extended [][]int
		for _, p := range found {
			for position := range len(p) + 1 {
				extended = append(extended, slices.Insert(slices.Clone(p), position, i))
			}
		}
		if found = extended; len(found) > limit {
			return nil
		}
	}
	return found
}
