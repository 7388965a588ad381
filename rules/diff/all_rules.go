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
				chain := &rs.Tables[i].Chains[j]
				for k := range chain.Rules {
					if !yield(&chain.Rules[k]) {
						return
					}
				}
			}
		}
	}
}

// hasMatch reports whether a rule has a match for which a condition is true, before or between its
// actions.
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

// hasAction reports whether a rule has an action for which a condition is true.
func hasAction(rs *rules.Ruleset, is func(rules.Action) bool) bool {
	for r := range allRules(rs) {
		if slices.ContainsFunc(r.Actions, is) {
			return true
		}
	}
	return false
}

// hasPart reports whether a tuple has a part for which a condition is true.
func hasPart(m rules.MatchTuple, is func(rules.Match) bool) bool {
	return slices.ContainsFunc(m.Alternatives, func(alternative []rules.Match) bool {
		return slices.ContainsFunc(alternative, is)
	})
}
