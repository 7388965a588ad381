package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// isDecided tells whether a base chain is at a hook where packets are decided about.
func isDecided(b *rules.Base) bool { return b.Hook == rules.Prerouting || b.Hook == rules.Output }

// concerns tells whether packets of one of the families come to the table.
func concerns(t *rules.Table, families []rules.Family) bool {
	return t.Family == rules.Inet || slices.Contains(families, t.Family)
}

// ofOthers tells whether packets of another family come to the table.
func ofOthers(t *rules.Table, families []rules.Family) bool {
	return slices.ContainsFunc([]rules.Family{rules.IPv4, rules.IPv6}, func(f rules.Family) bool {
		return (t.Family == rules.Inet || t.Family == f) && !slices.Contains(families, f)
	})
}

// elsewhere lists the base chains that act on packets of the families at hooks that have no part in the decision.
func elsewhere(rs *rules.Ruleset, families []rules.Family) []rules.ChainRef {
	var found []rules.ChainRef
	for i := range rs.Tables {
		t := &rs.Tables[i]
		for j := range t.Chains {
			c := &t.Chains[j]
			if c.Base != nil && !isDecided(c.Base) && concerns(t, families) && (len(c.Rules) > 0 || c.Base.Drop) {
				found = append(found, rules.ChainRef{Table: t, Chain: c})
			}
		}
	}
	return found
}

// unreachable lists the chains to which no packet comes: neither on the paths that were decided, nor by jumps from base chains whose
// packets, or some of them, have no part in the decision. Of these nothing is known but the jumps.
func unreachable(rs *rules.Ruleset, reached map[*rules.Chain]bool, families []rules.Family) []rules.ChainRef {
	var visit func(t *rules.Table, c *rules.Chain)
	visit = func(t *rules.Table, c *rules.Chain) {
		for _, r := range c.Rules {
			for _, a := range r.Actions {
				jump, ok := a.(rules.Jump)
				if !ok {
					continue
				}
				if target := t.Chain(jump.Chain); target != nil && !reached[target] {
					reached[target] = true
					visit(t, target)
				}
			}
		}
	}
	var found []rules.ChainRef
	for i := range rs.Tables {
		t := &rs.Tables[i]
		for j := range t.Chains {
			if c := &t.Chains[j]; c.Base != nil && (!isDecided(c.Base) || ofOthers(t, families)) {
				visit(t, c)
			}
		}
		for j := range t.Chains {
			if c := &t.Chains[j]; c.Base == nil && !reached[c] {
				found = append(found, rules.ChainRef{Table: t, Chain: c})
			}
		}
	}
	return found
}
