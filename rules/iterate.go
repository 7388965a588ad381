package rules

import "iter"

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

// CountRules returns the number of rules of the table.
func (t *Table) CountRules() int {
	n := 0
	for i := range t.Chains {
		n += len(t.Chains[i].Rules)
	}
	return n
}
