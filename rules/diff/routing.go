package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// mainTablePriority is that of the policy rule which looks into the main table, from which all
// packets with a route do not come back (fib_default_rules_init in net/ipv4/fib_rules.c, and alike
// in IPv6).
const mainTablePriority = 32766

// compareRouting lists in what the policy routes and addresses of two sides differ. The priority of
// a policy rule is no difference, if it comes before the main table: Istio leaves it to the kernel,
// which takes the one before. Nor is a rule that is there twice.
func compareRouting(left, right rules.Routing) []rules.Difference {
	type place struct {
		rules.PolicyRoute      // without a priority
		beforeMain        bool // the main table
	}
	placeOf := func(p rules.PolicyRoute) place {
		before := p.Priority < mainTablePriority
		p.Priority = 0
		return place{p, before}
	}
	priorities := map[place]int{}
	for _, p := range left.Policies {
		priorities[placeOf(p)] = p.Priority
	}
	right.Policies = slices.Clone(right.Policies)
	for i, p := range right.Policies {
		if priority, ok := priorities[placeOf(p)]; ok {
			right.Policies[i].Priority = priority
		}
	}
	return rules.Compare(rules.Ruleset{Routing: left}, rules.Ruleset{Routing: right})
}
