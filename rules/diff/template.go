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
	for t, r := range rs.AllRules() {
		// Rules of nftables do not save marks in a template.
		if (t.XTables || r.XTables) && slices.ContainsFunc(r.Actions, savesMark) && mayRunEarly(t) {
			return true
		}
	}
	return false
}

// savesMark reports whether an action sets the mark of a connection.
func savesMark(a rules.Action) bool {
	mix, ok := a.(rules.MixMark)
	return isAction[rules.SaveMark](a) || ok && mix.Conntrack
}
