package compat

import (
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// A part is what is ours in a table, as the kernel wants it: our chains, and the rules that jump to them out of others' chains. The zero
// value is nothing.
type part struct {
	chains []partChain
	jumps  []placedRule
}

type partChain struct {
	name  string
	rules []xtables.Rule
}

// A placedRule is the rule with that index in a chain of others.
type placedRule struct {
	chain string
	index int
	rule  xtables.Rule
}

// newPart encodes a table that holds nothing of others, or nothing if it is nil. In built-in chains its rules come first.
func newPart(id xtables.ID, t *rules.Table) (part, error) {
	var p part
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
			p.chains = append(p.chains, partChain{c.Name, list})
			continue
		}
		for i, r := range list {
			p.jumps = append(p.jumps, placedRule{c.Name, i, r})
		}
	}
	return p, nil
}

// takePart takes what is ours out of the table. Put into it again, it counts anew.
func takePart(t *xtables.Table) (part, error) {
	var p part
	var names []string
	for i := range t.Chains {
		c := &t.Chains[i]
		kept := c.Rules[:0:0]
		var own []xtables.Rule
		for j := range c.Rules {
			chain, _ := c.Rules[j].Jump()
			if !isOurs(c.Name) && !isOurs(chain) {
				kept = append(kept, c.Rules[j])
				continue
			}
			r, err := renewed(t.Family, &c.Rules[j])
			if err != nil {
				return p, fmt.Errorf("%s: chain %s: rule %d: %w", t, c.Name, j+1, err)
			}
			if isOurs(c.Name) {
				own = append(own, r)
			} else {
				p.jumps = append(p.jumps, placedRule{c.Name, j, r})
			}
		}
		if isOurs(c.Name) {
			names = append(names, c.Name)
			p.chains = append(p.chains, partChain{c.Name, own})
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

// renewed is the rule as a new one, of which the kernel has no counter yet.
func renewed(f rules.Family, r *xtables.Rule) (xtables.Rule, error) {
	var target xtables.Target
	target.Chain, target.Goto = r.Jump()
	if verdict, ok := r.Verdict(); ok {
		target.Verdict = verdict
	} else if target.Chain == "" {
		target.Extension = r.Target()
	}
	return xtables.NewRule(f, r.Header(), r.Matches(), target)
}

// putInto puts the part into a table that has nothing of ours. A chain of others that has gone meanwhile takes its jump with it.
func (p part) putInto(t *xtables.Table) error {
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
