package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// isCompared reports whether the chains of a hook are evaluated for all packets.
func isCompared(h rules.Hook) bool { return h == rules.Prerouting || h == rules.Output }

// isEvaluated reports whether the chains of a hook are evaluated for some packets.
func isEvaluated(h rules.Hook) bool { return isCompared(h) || h == rules.Postrouting }

// bothFamilies contains the families of packets.
var bothFamilies = []rules.Family{rules.IPv4, rules.IPv6}

// appliesTo reports whether packets of the family traverse the table.
func appliesTo(t *rules.Table, f rules.Family) bool {
	return t.Family == rules.Inet || t.Family == f
}

// appliesToAny reports whether packets of any of the families traverse the table.
func appliesToAny(t *rules.Table, families []rules.Family) bool {
	return t.Family == rules.Inet || slices.Contains(families, t.Family)
}

// appliesToOthers reports whether the table applies to a family that is not in the list.
func appliesToOthers(t *rules.Table, families []rules.Family) bool {
	return slices.ContainsFunc(bothFamilies, func(f rules.Family) bool {
		return appliesTo(t, f) && !slices.Contains(families, f)
	})
}

// chainsAtOtherHooks returns the base chains for the families at hooks other than prerouting and
// output, except chains without an effect.
func chainsAtOtherHooks(rs *rules.Ruleset, families []rules.Family) []rules.ChainRef {
	var found []rules.ChainRef
	for t, c := range rs.AllChains() {
		if appliesToAny(t, families) && c.Base != nil && isOtherHook(c.Base.Hook) && c.HasEffect() {
			found = append(found, rules.ChainRef{Table: t, Chain: c})
		}
	}
	return found
}

// reachable returns the chains of the table that packets may reach from base chains at the included
// hooks. A called chain is before its callers.
func reachable(t *rules.Table, isIncluded func(rules.Hook) bool) []*rules.Chain {
	var from []*rules.Chain
	for i := range t.Chains {
		if b := t.Chains[i].Base; b != nil && isIncluded(b.Hook) {
			from = append(from, &t.Chains[i])
		}
	}
	return t.ReachableFrom(from...)
}

// findUnreachable returns the user-defined chains that no packet reaches, neither in the evaluation
// nor by jumps from base chains that are not evaluated for all packets. It adds the chains that
// such jumps reach to reached.
func findUnreachable(
	rs *rules.Ruleset, reached map[*rules.Chain]bool, families []rules.Family,
) []rules.ChainRef {
	var found []rules.ChainRef
	for i := range rs.Tables {
		t := &rs.Tables[i]
		for _, c := range reachable(t, func(h rules.Hook) bool {
			return isOtherHook(h) || appliesToOthers(t, families)
		}) {
			reached[c] = true
		}
		for j := range t.Chains {
			if c := &t.Chains[j]; c.Base == nil && !reached[c] {
				found = append(found, rules.ChainRef{Table: t, Chain: c})
			}
		}
	}
	return found
}
