package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// compareRouting lists in what the policy routes and addresses of two sides differ. The priority of a policy rule is no difference:
// Istio leaves it to the kernel, which takes the one before the main table's. Nor is a rule that is there twice.
func compareRouting(left, right rules.Routing) []rules.Difference {
	right.Policies = slices.Clone(right.Policies)
	for i := range right.Policies {
		p := &right.Policies[i]
		for _, same := range left.Policies {
			if same.Family == p.Family && same.Mark == p.Mark && same.Table == p.Table {
				p.Priority = same.Priority
			}
		}
	}
	return rules.Compare(rules.Ruleset{Routing: left}, rules.Ruleset{Routing: right})
}
