package compat

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/rules"
)

// readLegacy reads what is ours in the tables of iptables-legacy, in the namespace of the thread, as oursIn or inPlace tells it. It creates
// no table.
func readLegacy(ours func(*rules.Table) *rules.Table) (holding, error) {
	ids, err := xtables.Tables(nil)
	if err != nil {
		return nil, err
	}
	held := holding{}
	for _, id := range ids {
		if !slices.Contains(kernelTables, id.Name) {
			continue
		}
		t, err := xtables.Read(nil, id.Family, id.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		if found := ours(decode(t)); found != nil {
			held[id] = found
		}
	}
	return held, nil
}

// oursIn is what is ours in a table, nil if nothing is: our chains, and of all others the rules that jump to them. What else others have
// there, policies included, does not count.
func oursIn(t *rules.Table) *rules.Table {
	return partOf(t, func(list []rules.Rule) []rules.Rule {
		return slices.DeleteFunc(slices.Clone(list), func(r rules.Rule) bool { return !jumpsToOurs(&r) })
	})
}

// inPlace is oursIn with the rules of others that run before a jump to our chains, which may keep packets from it: ours are to be first.
func inPlace(t *rules.Table) *rules.Table {
	return partOf(t, func(list []rules.Rule) []rules.Rule {
		for i := range slices.Backward(list) {
			if jumpsToOurs(&list[i]) {
				return list[:i+1]
			}
		}
		return nil
	})
}

// partOf is a table with our chains, and of the chains of others those with the rules that keep returns; nil if nothing is left.
func partOf(t *rules.Table, keep func([]rules.Rule) []rules.Rule) *rules.Table {
	ours := rules.Table{Family: t.Family, Name: t.Name}
	for _, c := range t.Chains {
		if !isOurs(c.Name) {
			if c.Rules = keep(c.Rules); len(c.Rules) == 0 {
				continue
			}
		}
		if c.Base != nil {
			c.Base = new(*c.Base)
			c.Base.Drop = false
		}
		ours.Chains = append(ours.Chains, c)
	}
	if len(ours.Chains) == 0 {
		return nil
	}
	return &ours
}

// isOurs tells whether a chain is one that only we make.
func isOurs(chain string) bool { return strings.HasPrefix(chain, chainPrefix) }

func jumpsToOurs(r *rules.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
		jump, ok := a.(rules.Jump)
		return ok && isOurs(jump.Chain)
	})
}

// count is the number of rules.
func (h holding) count() int {
	n := 0
	for _, t := range h {
		for _, c := range t.Chains {
			n += len(c.Rules)
		}
	}
	return n
}

// kept sums the counters of the rules that let older connections pass, which are those that count by their own wish.
func kept(want, live holding) uint64 {
	var n uint64
	for id, t := range want {
		for _, c := range t.Chains {
			for i, r := range c.Rules {
				if slices.Contains(r.Actions, rules.Action(rules.Count{})) {
					n += live[id].Chain(c.Name).Rules[i].Hits.Packets
				}
			}
		}
	}
	return n
}

// compare lists in what tables of iptables-legacy and routes differ. Every rule of the kernel's counts, whether it was asked to or not.
func compare(want, got rules.Ruleset) []rules.Difference {
	return rules.Compare(uncounted(want), uncounted(got))
}

// uncounted is the ruleset without the actions that only count.
func uncounted(rs rules.Ruleset) rules.Ruleset {
	rs.Tables = slices.Clone(rs.Tables)
	for i := range rs.Tables {
		chains := slices.Clone(rs.Tables[i].Chains)
		for j := range chains {
			list := slices.Clone(chains[j].Rules)
			for k := range list {
				list[k].Actions = withoutCount(list[k].Actions)
			}
			chains[j].Rules = list
		}
		rs.Tables[i].Chains = chains
	}
	return rs
}
