package rules

import (
	"iter"
	"slices"
)

// AllChains returns the chains of all tables in order, each with its table.
func (rs *Ruleset) AllChains() iter.Seq2[*Table, *Chain] {
	return func(yield func(*Table, *Chain) bool) {
		for i := range rs.Tables {
			t := &rs.Tables[i]
			for j := range t.Chains {
				if !yield(t, &t.Chains[j]) {
					return
				}
			}
		}
	}
}

// AllRules returns the rules of all chains in order, each with its table.
func (rs *Ruleset) AllRules() iter.Seq2[*Table, *Rule] {
	return func(yield func(*Table, *Rule) bool) {
		for t, c := range rs.AllChains() {
			for i := range c.Rules {
				if !yield(t, &c.Rules[i]) {
					return
				}
			}
		}
	}
}

// AllMatches returns the matches of the rule, the matches of its [Require] actions, and its
// [Unknown] actions, each of which may be a condition.
func (r *Rule) AllMatches() iter.Seq[Match] {
	return func(yield func(Match) bool) {
		for _, m := range r.Matches {
			if !yield(m) {
				return
			}
		}
		for _, a := range r.Actions {
			switch a := a.(type) {
			case Require:
				if !yield(a.Match) {
					return
				}
			case Unknown:
				if !yield(a) {
					return
				}
			}
		}
	}
}

// HasAction reports whether a rule of the chain has an action that meets the condition.
func (c *Chain) HasAction(condition func(Action) bool) bool {
	for i := range c.Rules {
		if slices.ContainsFunc(c.Rules[i].Actions, condition) {
			return true
		}
	}
	return false
}

// HasAction reports whether a rule of the ruleset has an action that meets the condition.
func (rs *Ruleset) HasAction(condition func(Action) bool) bool {
	for _, c := range rs.AllChains() {
		if c.HasAction(condition) {
			return true
		}
	}
	return false
}

// CountRules returns the number of rules of the table.
func (t *Table) CountRules() int {
	n := 0
	for i := range t.Chains {
		n += len(t.Chains[i].Rules)
	}
	return n
}
