package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// mainTablePriority is that of the policy rule which looks into the main table, from which all packets with a route do not come back
// (fib_default_rules_init in net/ipv4/fib_rules.c, and alike in IPv6).
const mainTablePriority = 32766

// compareRouting lists in what the policy routes and addresses of two sides differ. The priority of a policy rule is no difference,
// if it comes before the main table: Istio leaves it to the kernel, which takes the one before. Nor is a rule that is there twice.
func compareRouting(left, right rules.Routing) []rules.Difference {
	right.Policies = slices.Clone(right.Policies)
	for i := range right.Policies {
		p := &right.Policies[i]
		for _, same := range left.Policies {
			samePlace := (same.Priority < mainTablePriority) == (p.Priority < mainTablePriority)
			if same.Family == p.Family && same.Mark == p.Mark && same.Table == p.Table && samePlace {
				p.Priority = same.Priority
			}
		}
	}
	return rules.Compare(rules.Ruleset{Routing: left}, rules.Ruleset{Routing: right})
}
