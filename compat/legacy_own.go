package compat

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// encoded contains Sluice's rules of a table in the kernel's form: Sluice's chains, and the rules
// that jump to them from foreign chains. The zero value has no rules.
type encoded struct {
	chains []encodedChain
	jumps  []placedRule
}

type encodedChain struct {
	name  string
	rules []xtables.Rule
}

// A placedRule is a rule at an index of a foreign chain.
type placedRule struct {
	chain string
	index int
	rule  xtables.Rule
}

// encodeOwn encodes a table without foreign rules; nil means without rules. In built-in chains
// Sluice's rules come first.
func encodeOwn(id xtables.ID, t *rules.Table) (encoded, error) {
	var p encoded
	if t == nil {
		return p, nil
	}
	for _, c := range t.Chains {
		var list []xtables.Rule
		for i := range c.Rules {
			r, err := encodeForKernel(id.Family, &c.Rules[i])
			if err != nil {
				return p, fmt.Errorf("%s: chain %s: rule %d: %w", id, c.Name, i+1, err)
			}
			list = append(list, r)
		}
		if c.Base == nil {
			p.chains = append(p.chains, encodedChain{c.Name, list})
			continue
		}
		for i, r := range list {
			p.jumps = append(p.jumps, placedRule{c.Name, i, r})
		}
	}
	return p, nil
}

// withCounters returns the rules with the counters of the equal rules of the table: each has the
// counter of the first equal rule of its chain that no other has.
func (p encoded) withCounters(t *xtables.Table) encoded {
	present := map[string]map[string][]*xtables.Rule{} // by chain and identity
	for i := range t.Chains {
		c := &t.Chains[i]
		present[c.Name] = map[string][]*xtables.Rule{}
		for j := range c.Rules {
			id := c.Rules[j].Identity()
			present[c.Name][id] = append(present[c.Name][id], &c.Rules[j])
		}
	}
	keep := func(chain string, r xtables.Rule) xtables.Rule {
		id := r.Identity()
		equal := present[chain][id]
		if len(equal) == 0 {
			return r
		}
		present[chain][id] = equal[1:]
		return r.WithCounterOf(equal[0])
	}
	var counted encoded
	for _, own := range p.chains {
		c := encodedChain{name: own.name}
		for _, r := range own.rules {
			c.rules = append(c.rules, keep(own.name, r))
		}
		counted.chains = append(counted.chains, c)
	}
	for _, j := range p.jumps {
		j.rule = keep(j.chain, j.rule)
		counted.jumps = append(counted.jumps, j)
	}
	return counted
}

// removeOwn removes Sluice's rules from the table and returns them, without their counters.
func removeOwn(t *xtables.Table) (encoded, error) {
	var p encoded
	var names []string
	for i := range t.Chains {
		c := &t.Chains[i]
		kept := c.Rules[:0:0]
		var own []xtables.Rule
		for j := range c.Rules {
			chain, _ := c.Rules[j].Jump()
			if !IsSluiceChain(c.Name) && !IsSluiceChain(chain) {
				kept = append(kept, c.Rules[j])
				continue
			}
			r, err := withoutCounters(t.Family, &c.Rules[j])
			if err != nil {
				return p, fmt.Errorf("%s: chain %s: rule %d: %w", t, c.Name, j+1, err)
			}
			if IsSluiceChain(c.Name) {
				own = append(own, r)
			} else {
				p.jumps = append(p.jumps, placedRule{c.Name, j, r})
			}
		}
		if IsSluiceChain(c.Name) {
			names = append(names, c.Name)
			p.chains = append(p.chains, encodedChain{c.Name, own})
			continue
		}
		c.Rules = kept
	}
	for _, name := range names {
		if err := t.DeleteChain(name); err != nil {
			return p, err
		}
	}
	return p, nil
}

// withoutCounters returns an equivalent rule without counters.
func withoutCounters(f rules.Family, r *xtables.Rule) (xtables.Rule, error) {
	var target xtables.Target
	target.Chain, target.Goto = r.Jump()
	if verdict, ok := r.Verdict(); ok {
		target.Verdict = verdict
	} else if target.Chain == "" {
		target.Extension = r.Target()
	}
	return xtables.NewRule(f, r.Header(), r.Matches(), target)
}

// insertInto inserts the rules into a table without rules of Sluice. It omits a jump from a chain
// that another process has deleted meanwhile.
func (p encoded) insertInto(t *xtables.Table) error {
	for _, own := range p.chains {
		c, err := t.AddChain(own.name)
		if err != nil {
			return err
		}
		c.Rules = slices.Clone(own.rules)
	}
	for _, j := range p.jumps {
		if c := t.Chain(j.chain); c != nil {
			c.Rules = slices.Insert(c.Rules, min(j.index, len(c.Rules)), j.rule)
		}
	}
	return nil
}
