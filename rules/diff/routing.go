package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// mainTablePriority is the priority of the policy rule for the main table (fib_default_rules_init
// in net/ipv4/fib_rules.c; the same in IPv6). Later rules do not apply to packets for which the
// main table has a route.
const mainTablePriority = 32766

// compareRouting returns the differences of the policy routes and addresses of two sides. The
// priorities of two policy rules count as equal if both rules precede, or both follow, the rule of
// the main table, because Istio lets the kernel choose the priority. Duplicates of a rule are
// ignored.
func compareRouting(left, right rules.Routing) []rules.Difference {
	type position struct {
		rules.PolicyRoute // without its priority
		beforeMainTable   bool
	}
	positionOf := func(p rules.PolicyRoute) position {
		before := p.Priority < mainTablePriority
		p.Priority = 0
		return position{p, before}
	}
	priorities := map[position]int{}
	for _, p := range left.Policies {
		priorities[positionOf(p)] = p.Priority
	}
	right.Policies = slices.Clone(right.Policies)
	for i, p := range right.Policies {
		if priority, ok := priorities[positionOf(p)]; ok {
			right.Policies[i].Priority = priority
		}
	}
	return rules.Compare(rules.Ruleset{Routing: left}, rules.Ruleset{Routing: right})
}
