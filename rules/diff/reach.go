package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// isDecided reports whether a base chain is at a hook where packets are decided about.
func isDecided(b *rules.Base) bool { return b.Hook == rules.Prerouting || b.Hook == rules.Output }

// concerns reports whether packets of one of the families come to the table.
func concerns(t *rules.Table, families []rules.Family) bool {
	return t.Family == rules.Inet || slices.Contains(families, t.Family)
}

// ofOthers reports whether packets of another family come to the table.
func ofOthers(t *rules.Table, families []rules.Family) bool {
	return slices.ContainsFunc([]rules.Family{rules.IPv4, rules.IPv6}, func(f rules.Family) bool {
		return (t.Family == rules.Inet || t.Family == f) && !slices.Contains(families, f)
	})
}

// elsewhere lists the base chains that act on packets of the families at hooks that have no part in
// the decision.
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

// unreachable lists the chains to which no packet comes: neither on the paths that were decided,
// nor by jumps from base chains whose packets, or some of them, have no part in the decision. Of
// these nothing is known but the jumps.
func unreachable(rs *rules.Ruleset, reached map[*rules.Chain]bool, families []rules.Family) []rules.ChainRef {
	var index map[string]*rules.Chain // of the present table
	var visit func(c *rules.Chain)
	visit = func(c *rules.Chain) {
		for _, r := range c.Rules {
			for _, a := range r.Actions {
				jump, ok := a.(rules.Jump)
				if !ok {
					continue
				}
				if target := index[jump.Chain]; target != nil && !reached[target] {
					reached[target] = true
					visit(target)
				}
			}
		}
	}
	var found []rules.ChainRef
	for i := range rs.Tables {
		t := &rs.Tables[i]
		index = make(map[string]*rules.Chain, len(t.Chains))
		for j := range t.Chains {
			index[t.Chains[j].Name] = &t.Chains[j]
		}
		for j := range t.Chains {
			if c := &t.Chains[j]; c.Base != nil && (!isDecided(c.Base) || ofOthers(t, families)) {
				visit(c)
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
