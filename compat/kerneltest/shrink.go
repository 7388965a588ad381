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

// shrink repeatedly removes one part of the ruleset and calls fails with the rest. It continues
// from the rest if fails returns true. It stops if fails returns an error, if no part can be
// removed, or after maxShrinking. It returns [ErrNotRepeated] if fails returns false for the whole
// ruleset.
func shrink(rs Ruleset, fails func(Ruleset) (bool, error)) error {
	repeats, err := fails(rs)
	switch {
	case err != nil:
		return err
	case !repeats:
		return ErrNotRepeated
	}
	begin := time.Now()
	for changed := true; changed; {
		changed = false
		for _, smaller := range rs.smaller() {
			if time.Since(begin) > maxShrinking {
				return nil
			}
			failed, err := fails(smaller)
			if err != nil {
				return err
			}
			if failed {
				rs, changed = smaller, true
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
	for i := range rs {
		if len(rs) > 1 {
			list = append(list, slices.Delete(rs.clone(), i, i+1))
		}
	}
	for i := range rs {
		for j := range rs[i].Chains {
			c := &rs[i].Chains[j]
			if rs[i].Program == NFT || c.Base == "" {
				without := rs.clone()
				without[i].Chains = slices.Delete(without[i].Chains, j, j+1)
				list = append(list, without)
			}
			if c.Base == "DROP" {
				accepting := rs.clone()
				accepting[i].Chains[j].Base = "ACCEPT"
				list = append(list, accepting)
			}
			if len(c.Rules) > 1 {
				empty := rs.clone()
				empty[i].Chains[j].Rules = nil
				list = append(list, empty)
			}
		}
	}
	for i := range rs {
		if rs[i].Program == NFT && len(rs[i].Sets) > 0 {
			without := rs.clone()
			without[i].Sets = nil
			list = append(list, without)
		}
		for j := range rs[i].Chains {
			for k := range rs[i].Chains[j].Rules {
				without := rs.clone()
				c := &without[i].Chains[j]
				c.Rules = slices.Delete(c.Rules, k, k+1)
				list = append(list, without)
			}
		}
	}
	for i := range rs {
		for j := range rs[i].Chains {
			for k, r := range rs[i].Chains[j].Rules {
				for l := range r {
					if len(r) > 1 {
						without := rs.clone()
						c := &without[i].Chains[j]
						c.Rules[k] = slices.Delete(c.Rules[k], l, l+1)
						list = append(list, without)
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
	err := shrink(f.Ruleset, func(rs Ruleset) (bool, error) {
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
