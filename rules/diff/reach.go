package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// isDecided reports whether the hook of a base chain is evaluated.
func isDecided(b *rules.Base) bool { return b.Hook == rules.Prerouting || b.Hook == rules.Output }

// appliesTo reports whether packets of one of the families traverse the table.
func appliesTo(t *rules.Table, families []rules.Family) bool {
	return t.Family == rules.Inet || slices.Contains(families, t.Family)
}

// ofOthers reports whether packets of another family traverse the table.
func ofOthers(t *rules.Table, families []rules.Family) bool {
	return slices.ContainsFunc([]rules.Family{rules.IPv4, rules.IPv6}, func(f rules.Family) bool {
		return (t.Family == rules.Inet || t.Family == f) && !slices.Contains(families, f)
	})
}

// chainsAtOtherHooks returns the base chains for the families at hooks that are not evaluated.
func chainsAtOtherHooks(rs *rules.Ruleset, families []rules.Family) []rules.ChainRef {
	var found []rules.ChainRef
	for i := range rs.Tables {
		t := &rs.Tables[i]
		for j := range t.Chains {
			c := &t.Chains[j]
			if c.Base != nil && !isDecided(c.Base) && appliesTo(t, families) && (len(c.Rules) > 0 ||
				c.Base.Drop) {
				found = append(found, rules.ChainRef{Table: t, Chain: c})
			}
		}
	}
	return found
}

// unreachable returns the user-defined chains that no packet reaches: neither in the evaluation nor
// by jumps from base chains that are not evaluated for all packets.
func unreachable(
	rs *rules.Ruleset, reached map[*rules.Chain]bool, families []rules.Family,
) []rules.ChainRef {
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
