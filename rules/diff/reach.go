package diff

import "github.com/sluice-mesh/sluice/rules"

// unreachable lists the chains to which no packet comes: neither on the paths that were decided, nor by jumps from the base chains
// of other hooks, of which nothing is known but the jumps.
func unreachable(rs *rules.Ruleset, reached map[*rules.Chain]bool) []rules.ChainRef {
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
			if c := &t.Chains[j]; c.Base != nil && c.Base.Hook != rules.Prerouting && c.Base.Hook != rules.Output {
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
