package foreign

import (
	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// maxOrders is the maximum number of orders of base chains to evaluate: those of three pairs of
// chains, or of three chains.
const maxOrders = 8

// ordersOf returns all orders of base chains whose order is unknown; each function applies one to
// the ruleset. It returns false if there are too many.
//
// Some of the orders may be impossible if the order of some pairs is known. Additional orders can
// only make the result less certain.
func ordersOf(ambiguous []compat.Ambiguity) ([]func(), bool) {
	orders := []func(){func() {}}
	for _, a := range ambiguous {
		if a.Chains[0].Chain.Base.Position() == rules.ConntrackPriority {
			return nil, false // on which side of conntrack they run is not known either
		}
		var longer []func()
		for _, p := range permutations(len(a.Chains), maxOrders) {
			for _, before := range orders {
				longer = append(longer, func() {
					before()
					for i, c := range a.Chains {
						c.Chain.Base.Order = p[i]
					}
				})
			}
		}
		if orders = longer; len(orders) == 0 || len(orders) > maxOrders {
			return nil, false
		}
	}
	return orders, true
}

// permutations returns all permutations of n elements, or nil if there are more than the limit.
func permutations(n, limit int) [][]int {
	all := [][]int{{}}
	for i := range n {
		var longer [][]int
		for _, p := range all {
			for at := range len(p) + 1 {
				q := append(append(append([]int{}, p[:at]...), i), p[at:]...)
				longer = append(longer, q)
			}
		}
		if all = longer; len(all) > limit {
			return nil
		}
	}
	return all
}
