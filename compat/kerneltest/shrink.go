package kerneltest

import (
	"errors"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/rules"
)

// maxShrinking is the maximum time for shrinking a failure.
const maxShrinking = 20 * time.Second

// ErrNotRepeated is the error for a failure that does not occur if the packet is sent alone. Such a
// failure depends on earlier packets of the batch, for instance because of a connection or a limit.
var ErrNotRepeated = errors.New("the failure does not repeat for the packet alone")

// shrink repeatedly calls fails with the values that smaller returns, and continues from the first
// value for which fails returns true. It stops if fails returns an error, if no smaller value
// fails, or after maxShrinking. It returns [ErrNotRepeated] if fails returns false for the whole
// value.
func shrink[T any](whole T, smaller func(T) []T, fails func(T) (bool, error)) error {
	repeats, err := fails(whole)
	switch {
	case err != nil:
		return err
	case !repeats:
		return ErrNotRepeated
	}
	begin := time.Now()
	for changed := true; changed; {
		changed = false
		for _, candidate := range smaller(whole) {
			if time.Since(begin) > maxShrinking {
				return nil
			}
			failed, err := fails(candidate)
			if err != nil {
				return err
			}
			if failed {
				whole, changed = candidate, true
				break
			}
		}
	}
	return nil
}

// smaller returns the rulesets that lack one part of the ruleset: a table, a chain, the policy
// DROP, the rules of a chain, the sets of a table, a rule, or a term of a rule. The rulesets that
// lack the largest parts are first.
func (rs Ruleset) smaller() []Ruleset {
	var list []Ruleset
	// add adds the ruleset with a change of a table.
	add := func(table int, change func(*Table)) {
		changed := rs.clone()
		change(&changed[table])
		list = append(list, changed)
	}
	for i := range rs {
		if len(rs) > 1 {
			list = append(list, slices.Delete(rs.clone(), i, i+1))
		}
	}
	for i := range rs {
		for j, c := range rs[i].Chains {
			if rs[i].Program == NFT || c.Base == "" {
				add(i, func(t *Table) { t.Chains = slices.Delete(t.Chains, j, j+1) })
			}
			if c.Base == "DROP" {
				add(i, func(t *Table) { t.Chains[j].Base = "ACCEPT" })
			}
			if len(c.Rules) > 1 {
				add(i, func(t *Table) { t.Chains[j].Rules = nil })
			}
		}
	}
	for i := range rs {
		if rs[i].Program == NFT && len(rs[i].Sets) > 0 {
			add(i, func(t *Table) { t.Sets = nil })
		}
		for j, c := range rs[i].Chains {
			for k := range c.Rules {
				add(i, func(t *Table) { t.Chains[j].Rules = slices.Delete(t.Chains[j].Rules, k, k+1) })
			}
		}
	}
	for i := range rs {
		for j, c := range rs[i].Chains {
			for k, r := range c.Rules {
				for l := range r {
					if len(r) > 1 {
						add(i, func(t *Table) {
							t.Chains[j].Rules[k] = slices.Delete(t.Chains[j].Rules[k], l, l+1)
						})
					}
				}
			}
		}
	}
	return list
}

// Shrink removes rules, terms, chains and tables from the ruleset of a failure while the prediction
// for the packet is still wrong, and stops after maxShrinking. If the failure does not repeat, it
// returns the failure with [ErrNotRepeated].
func (n *Network) Shrink(f Failure) (Failure, error) {
	smallest := f
	err := shrink(f.Ruleset, Ruleset.smaller, func(rs Ruleset) (bool, error) {
		comparisons, ambiguous, err := n.compare(rs, []rules.Packet{f.Packet},
			openListeners(&f.Packet))
		switch {
		case IsRefused(err):
			return false, nil
		case err != nil:
			return false, err
		}
		c := comparisons[0]
		if c.err != nil || c.undecided != "" || c.agrees || ambiguous {
			return false, nil
		}
		c.failure.Seed = f.Seed
		smallest = c.failure
		return true, nil
	})
	return smallest, err
}
