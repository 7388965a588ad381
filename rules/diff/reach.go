package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// isCompared reports whether the chains of a hook are evaluated for all packets.
func isCompared(h rules.Hook) bool { return h == rules.Prerouting || h == rules.Output }

// isEvaluated reports whether the chains of a hook are evaluated for some packets.
func isEvaluated(h rules.Hook) bool { return isCompared(h) || h == rules.Postrouting }

// appliesTo reports whether packets of the family traverse the table.
func appliesTo(t *rules.Table, f rules.Family) bool {
	return t.Family == rules.Inet || t.Family == f
}

// appliesToOthers reports whether the table applies to a family that is not in the list.
func appliesToOthers(t *rules.Table, families []rules.Family) bool {
	return slices.ContainsFunc([]rules.Family{rules.IPv4, rules.IPv6}, func(f rules.Family) bool {
		return appliesTo(t, f) && !slices.Contains(families, f)
	})
}

// chainsAtOtherHooks returns the base chains for the families at hooks other than prerouting and
// output, except chains without an effect.
func chainsAtOtherHooks(rs *rules.Ruleset, families []rules.Family) []rules.ChainRef {
	var found []rules.ChainRef
	for t, c := range rs.AllChains() {
		applies := t.Family == rules.Inet || slices.Contains(families, t.Family)
		if applies && c.Base != nil && !isCompared(c.Base.Hook) && c.HasEffect() {
			found = append(found, rules.ChainRef{Table: t, Chain: c})
		}
	}
	return found
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
		var from []*rules.Chain
		for j := range t.Chains {
			if c := &t.Chains[j]; c.Base != nil &&
				(!isCompared(c.Base.Hook) || appliesToOthers(t, families)) {
				from = append(from, c)
			}
		}
		for _, c := range t.ReachableFrom(from...) {
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
