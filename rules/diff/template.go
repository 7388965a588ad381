package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// marksTemplates reports whether a rule may save a mark in a conntrack template: a rule of xtables
// saves a mark, in a table with a chain that may run before conntrack. A packet has a template,
// which represents its connection until conntrack runs, if an earlier rule assigned a zone.
func marksTemplates(rs *rules.Ruleset) bool {
	mayRunEarly := func(t *rules.Table) bool {
		return slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
			return c.Base != nil && c.Base.Type != rules.NAT &&
				c.Base.Position() <= rules.ConntrackPriority
		})
	}
	// Rules of nftables do not save marks in a template.
	saves := func(t *rules.Table) bool {
		for _, c := range t.Chains {
			for _, r := range c.Rules {
				if !t.XTables && !r.XTables {
					continue
				}
				for _, a := range r.Actions {
					switch a := a.(type) {
					case rules.SaveMark:
						return true
					case rules.MixMark:
						if a.Conntrack {
							return true
						}
					}
				}
			}
		}
		return false
	}
	for i := range rs.Tables {
		if t := &rs.Tables[i]; mayRunEarly(t) && saves(t) {
			return true
		}
	}
	return false
}
