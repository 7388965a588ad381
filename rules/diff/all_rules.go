package diff

import (
	"iter"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// allRules returns the rules of all chains, at any hook.
func allRules(rs *rules.Ruleset) iter.Seq[*rules.Rule] {
	return func(yield func(*rules.Rule) bool) {
		for i := range rs.Tables {
			for j := range rs.Tables[i].Chains {
				list := rs.Tables[i].Chains[j].Rules
				for k := range list {
					if !yield(&list[k]) {
						return
					}
				}
			}
		}
	}
}

// hasMatch reports whether a rule has such a match, also one between its actions.
func hasMatch(rs *rules.Ruleset, is func(rules.Match) bool) bool {
	for r := range allRules(rs) {
		if slices.ContainsFunc(r.Matches, is) {
			return true
		}
	}
	return hasAction(rs, func(a rules.Action) bool {
		q, ok := a.(rules.Require)
		return ok && is(q.Match)
	})
}

// hasAction reports whether a rule has such an action.
func hasAction(rs *rules.Ruleset, is func(rules.Action) bool) bool {
	for r := range allRules(rs) {
		if slices.ContainsFunc(r.Actions, is) {
			return true
		}
	}
	return false
}
