package rules

import "slices"

// Hits is the value of a rule's counter.
type Hits struct{ Packets, Bytes uint64 }

// Counts reports whether the rule has a counter.
func (r *Rule) Counts() bool { return slices.Contains(r.Actions, Action(Count{})) }

// KeepsEstablished reports whether the rule exempts connections that are older than the rules from
// capture. Such a rule always has a counter: see [Redirect.KeepEstablished].
func (r *Rule) KeepsEstablished() bool {
	return r.Counts() && slices.Contains(r.Matches, notOpening)
}

// WithoutCount returns the actions without counters.
func WithoutCount(actions []Action) []Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a Action) bool {
		return a == Action(Count{})
	})
}

// HasCounters reports whether any rule has a counter, except rules that keep established
// connections (see [Rule.KeepsEstablished]).
func (rs Ruleset) HasCounters() bool {
	for _, r := range rs.AllRules() {
		if r.Counts() && !r.KeepsEstablished() {
			return true
		}
	}
	return false
}

// WithoutCounters returns the ruleset without counters, except in rules that keep established
// connections (see [Rule.KeepsEstablished]).
func (rs Ruleset) WithoutCounters() Ruleset {
	rs.Tables = slices.Clone(rs.Tables)
	for i := range rs.Tables {
		chains := slices.Clone(rs.Tables[i].Chains)
		for j := range chains {
			rules := slices.Clone(chains[j].Rules)
			for k := range rules {
				if r := &rules[k]; r.Counts() && !r.KeepsEstablished() {
					r.Actions = WithoutCount(r.Actions)
				}
			}
			chains[j].Rules = rules
		}
		rs.Tables[i].Chains = chains
	}
	return rs
}

// addCounters adds a counter to each rule that has none.
func (c *compiler) addCounters(chains []Chain) {
	for i := range chains {
		for j := range chains[i].Rules {
			if r := &chains[i].Rules[j]; !r.Counts() {
				start := len(c.actions)
				c.actions = append(append(c.actions, Count{}), r.Actions...)
				r.Actions = c.actions[start:len(c.actions):len(c.actions)]
			}
		}
	}
}
