package foreign

import (
	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// maxOrders is the maximum number of chain orders to evaluate. It is enough for three ambiguous
// pairs (2³) or one ambiguous triple (3!).
const maxOrders = 8

// ordersOf returns one function for each possible order of the ambiguous base chains. A function
// sets that order in the ruleset. ordersOf returns false if there are more than maxOrders.
//
// The result may include impossible orders, because known orders of pairs are not used. This is
// safe: an additional order can only make the result undecided.
func ordersOf(ambiguous []compat.Ambiguity) ([]func(), bool) {
	orders := []func(){func() {}}
	for _, a := range ambiguous {
		if a.Chains[0].Chain.Base.Position() == rules.ConntrackPriority {
			return nil, false // it is also unknown whether they run before or after conntrack
		}
		var extended []func()
		for _, p := range permutations(len(a.Chains), maxOrders) {
			for _, applyPrevious := range orders {
				extended = append(extended, func() {
					applyPrevious()
					for i, c := range a.Chains {
						c.Chain.Base.Order = p[i]
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

// permutations returns all permutations of n elements, or nil if there are more than the limit.
func permutations(n, limit int) [][]int {
	all := [][]int{{}}
	for i := range n {
		var extended [][]int
		for _, p := range all {
			for at := range len(p) + 1 {
				q := append(append(append([]int{}, p[:at]...), i), p[at:]...)
				extended = append(extended, q)
			}
		}
		if all = extended; len(all) > limit {
			return nil
		}
	}
	return all
}
