package diff

import (
	"iter"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// evaluatedRules returns the rules of the chains that packets of the families may traverse at
// evaluated hooks.
func evaluatedRules(rs *rules.Ruleset, families []rules.Family) iter.Seq[*rules.Rule] {
	return func(yield func(*rules.Rule) bool) {
		for t, c := range reachableChains(rs, isEvaluated) {
			if !appliesToAny(t, families) {
				continue
			}
			for i := range c.Rules {
				if !yield(&c.Rules[i]) {
					return
				}
			}
		}
	}
}

// hasMatch reports whether a rule of the ruleset has a match (see [rules.Rule.AllMatches]) for
// which the condition is true. It examines the matches in tuples too.
func hasMatch(rs *rules.Ruleset, condition func(rules.Match) bool) bool {
	condition = inTuples(condition)
	for _, r := range rs.AllRules() {
		if ruleHasMatch(r, condition) {
			return true
		}
	}
	return false
}

// eachMatch calls do for each match of the ruleset, including the matches in tuples, but not the
// tuples. It visits alternatives that several rules share only once.
func eachMatch(rs *rules.Ruleset, do func(rules.Match)) {
	hasMatch(rs, func(m rules.Match) bool {
		do(m)
		return false
	})
}

// ruleHasMatch reports whether a rule has a match (see [rules.Rule.AllMatches]) for which the
// condition is true.
func ruleHasMatch(r *rules.Rule, condition func(rules.Match) bool) bool {
	for m := range r.AllMatches() {
		if condition(m) {
			return true
		}
	}
	return false
}

// chainHasMatch reports whether ruleHasMatch is true for a rule of the chain.
func chainHasMatch(c *rules.Chain, condition func(rules.Match) bool) bool {
	return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
		return ruleHasMatch(&r, condition)
	})
}

// inTuples returns a condition that is also true for a tuple with a match for which the given
// condition is true. It examines alternatives that several rules share only once, because there may
// be many rules and many alternatives.
func inTuples(condition func(rules.Match) bool) func(rules.Match) bool {
	var known map[listKey[[]rules.Match]]bool
	var meets func(rules.Match) bool
	meets = func(m rules.Match) bool {
		tuple, ok := m.(rules.MatchTuple)
		if !ok {
			return condition(m)
		}
		return cached(&known, keyOf(tuple.Alternatives), func() bool {
			return slices.ContainsFunc(tuple.Alternatives, func(alternative []rules.Match) bool {
				return slices.ContainsFunc(alternative, meets)
			})
		})
	}
	return meets
}
