package compat

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// encodedRules contains Sluice's rules of a table in the kernel's format: Sluice's chains, and the
// rules of other chains that jump to them. MarkTraces uses the type for its rules too. The zero
// value has no rules.
type encodedRules struct {
	chains []encodedChain
	jumps  []jumpRule
}

type encodedChain struct {
	name  string
	rules []xtables.Rule
}

// A jumpRule is a rule at an index of a built-in or foreign chain. It jumps to one of the encoded
// chains. The jumps in a chain are in ascending order of their indexes.
type jumpRule struct {
	chain string
	index int
	rule  xtables.Rule
}

// encodeSluiceRules encodes t, which must contain only Sluice's rules. A nil t has no rules. The
// jumps get the first indexes of the built-in chains.
func encodeSluiceRules(id xtables.ID, t *rules.Table) (encodedRules, error) {
	var e encodedRules
	if t == nil {
		return e, nil
	}
	for _, c := range t.Chains {
		var list []xtables.Rule
		for i := range c.Rules {
			r, err := encodeForKernel(id.Family, &c.Rules[i])
			if err != nil {
				return e, fmt.Errorf("%s: chain %s: rule %d: %w", id, c.Name, i+1, err)
			}
			list = append(list, r)
		}
		if c.Base == nil {
			e.chains = append(e.chains, encodedChain{c.Name, list})
			continue
		}
		for i, r := range list {
			e.jumps = append(e.jumps, jumpRule{c.Name, i, r})
		}
	}
	return e, nil
}

// withCounters returns the rules with the counters of equal rules in the same chain of the table.
// Each counter of the table is used once: of several equal rules, the first takes the first
// counter.
func (e encodedRules) withCounters(t *xtables.Table) encodedRules {
	present := map[string]map[string][]*xtables.Rule{} // by chain and identity
	for i := range t.Chains {
		c := &t.Chains[i]
		present[c.Name] = map[string][]*xtables.Rule{}
		for j := range c.Rules {
			id := c.Rules[j].Identity()
			present[c.Name][id] = append(present[c.Name][id], &c.Rules[j])
		}
	}
	takeCounter := func(chain string, r xtables.Rule) xtables.Rule {
		id := r.Identity()
		equal := present[chain][id]
		if len(equal) == 0 {
			return r
		}
		present[chain][id] = equal[1:]
		return r.WithCounterOf(equal[0])
	}
	var counted encodedRules
	for _, encoded := range e.chains {
		c := encodedChain{name: encoded.name}
		for _, r := range encoded.rules {
			c.rules = append(c.rules, takeCounter(encoded.name, r))
		}
		counted.chains = append(counted.chains, c)
	}
	for _, j := range e.jumps {
		j.rule = takeCounter(j.chain, j.rule)
		counted.jumps = append(counted.jumps, j)
	}
	return counted
}

// removeSluiceRules removes Sluice's rules from the table and returns them with their counters set
// to 0.
func removeSluiceRules(t *xtables.Table) (encodedRules, error) {
	var e encodedRules
	for i := range t.Chains {
		c := &t.Chains[i]
		kept := c.Rules[:0:0]
		var sluiceRules []xtables.Rule
		for j := range c.Rules {
			chain, _ := c.Rules[j].Jump()
			if !IsSluiceChain(c.Name) && !IsSluiceChain(chain) {
				kept = append(kept, c.Rules[j])
				continue
			}
			r, err := withZeroCounters(t.Family, &c.Rules[j])
			if err != nil {
				return e, fmt.Errorf("%s: chain %s: rule %d: %w", t, c.Name, j+1, err)
			}
			if IsSluiceChain(c.Name) {
				sluiceRules = append(sluiceRules, r)
			} else {
				e.jumps = append(e.jumps, jumpRule{c.Name, j, r})
			}
		}
		if IsSluiceChain(c.Name) {
			e.chains = append(e.chains, encodedChain{c.Name, sluiceRules})
			continue
		}
		c.Rules = kept
	}
	t.DeleteChains(IsSluiceChain)
	return e, nil
}

// withZeroCounters returns the rule with its counters set to 0.
func withZeroCounters(f rules.Family, r *xtables.Rule) (xtables.Rule, error) {
	var target xtables.Target
	target.Chain, target.Goto = r.Jump()
	if verdict, ok := r.Verdict(); ok {
		target.Verdict = verdict
	} else if target.Chain == "" {
		target.Extension = r.Target()
	}
	return xtables.NewRule(f, r.Header(), r.Matches(), target)
}

// insertInto inserts the rules into t, which must not contain the chains yet. It skips jumps from
// chains that no longer exist.
func (e encodedRules) insertInto(t *xtables.Table) error {
	names := make([]string, len(e.chains))
	for i := range e.chains {
		names[i] = e.chains[i].name
	}
	added, err := t.AddChains(names...)
	if err != nil {
		return err
	}
	for i := range added {
		added[i].Rules = slices.Clone(e.chains[i].rules)
	}
	jumps := map[string][]jumpRule{}
	for _, j := range e.jumps {
		jumps[j.chain] = append(jumps[j.chain], j)
	}
	for i := range t.Chains {
		c := &t.Chains[i]
		c.Rules = insertJumps(c.Rules, jumps[c.Name])
		delete(jumps, c.Name) // other programs can write two chains with one name
	}
	return nil
}

// insertJumps returns the rules with the jumps at their indexes, which must be in ascending order.
func insertJumps(list []xtables.Rule, jumps []jumpRule) []xtables.Rule {
	all := make([]xtables.Rule, 0, len(list)+len(jumps))
	for _, j := range jumps {
		n := max(min(j.index-len(all), len(list)), 0) // rules before the jump
		all, list = append(all, list[:n]...), list[n:]
		all = append(all, j.rule)
	}
	return append(all, list...)
}
