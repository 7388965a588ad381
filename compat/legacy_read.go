package compat

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/compat/xtables"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// readLegacy returns the selected rules of sluiceTables in the namespace of the thread. selection
// is sluiceRules or sluiceAndPrecedingRules. readLegacy creates no table.
func readLegacy(selection func(*rules.Table) *rules.Table) (tables, error) {
	ids, err := xtables.Tables(nil)
	if err != nil {
		return nil, err
	}
	found := tables{}
	var r xtables.Reader
	for _, id := range ids {
		if !slices.Contains(sluiceTables, id.Name) {
			continue
		}
		t, err := r.Read(nil, id.Family, id.Name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		}
		if selected := selection(DecodeTable(t)); selected != nil {
			found[id] = selected
		}
	}
	return found, nil
}

// sluiceRules returns Sluice's chains of a table, and the rules of other chains that jump to them.
// It omits policies, and returns nil if the table has neither such chains nor such rules.
func sluiceRules(t *rules.Table) *rules.Table {
	return selectSluiceRules(t, func(list []rules.Rule) []rules.Rule {
		return slices.DeleteFunc(slices.Clone(list), func(r rules.Rule) bool {
			return !JumpsToSluice(&r)
		})
	})
}

// InstalledLegacy returns the tables for which [IsLegacySluiceTable] returns true and that contain
// Sluice's chains or jumps to them. rs must be a result of [ReadLive]. The returned tables contain
// only these chains and jumps, and have no policies.
func InstalledLegacy(rs *rules.Ruleset) []rules.Table {
	var installed []rules.Table
	for i := range rs.Tables {
		if t := &rs.Tables[i]; IsLegacySluiceTable(t) {
			if selected := sluiceRules(t); selected != nil {
				selected.XTables, selected.Comment = t.XTables, t.Comment
				installed = append(installed, *selected)
			}
		}
	}
	return installed
}

// IsLegacySluiceTable reports whether a table of [ReadLive] is one of the tables of iptables-legacy
// that may contain Sluice's chains: raw, mangle or nat. In another table, a chain with the name of
// a Sluice chain is foreign, and is not compared with the desired ruleset.
func IsLegacySluiceTable(t *rules.Table) bool {
	return IsLegacyTable(t) && slices.Contains(sluiceTables, t.Name)
}

// sluiceAndPrecedingRules returns the result of sluiceRules, and the foreign rules that precede a
// jump to Sluice's chains. A preceding rule may end the chain before the jump. Rules that jump to
// the chain of [MarkTraces] are omitted, because they never end a chain.
func sluiceAndPrecedingRules(t *rules.Table) *rules.Table {
	return selectSluiceRules(t, func(list []rules.Rule) []rules.Rule {
		for i := range slices.Backward(list) {
			if JumpsToSluice(&list[i]) {
				return slices.DeleteFunc(slices.Clone(list[:i+1]), func(r rules.Rule) bool {
					return JumpsToTraceChain(&r)
				})
			}
		}
		return nil
	})
}

// selectSluiceRules returns a table with Sluice's chains, and with the selected rules of other
// chains. It returns nil if there are none.
func selectSluiceRules(t *rules.Table, selection func([]rules.Rule) []rules.Rule) *rules.Table {
	selected := rules.Table{Family: t.Family, Name: t.Name}
	for _, c := range t.Chains {
		if !IsSluiceChain(c.Name) {
			if c.Rules = selection(c.Rules); len(c.Rules) == 0 {
				continue
			}
		}
		if c.Base != nil {
			c.Base = new(*c.Base)
			c.Base.Drop = false
		}
		selected.Chains = append(selected.Chains, c)
	}
	if len(selected.Chains) == 0 {
		return nil
	}
	return &selected
}

// IsSluiceChain reports whether a chain of iptables-legacy is a chain of Sluice, by its name.
func IsSluiceChain(chain string) bool { return strings.HasPrefix(chain, ChainPrefix) }

// JumpsToSluice reports whether a rule of iptables-legacy jumps to a chain of Sluice.
func JumpsToSluice(r *rules.Rule) bool { return jumpsTo(r, IsSluiceChain) }

// JumpsToTraceChain reports whether a rule jumps to the chain of [MarkTraces].
func JumpsToTraceChain(r *rules.Rule) bool {
	return jumpsTo(r, func(chain string) bool { return chain == trace.Chain })
}

func jumpsTo(r *rules.Rule, matches func(chain string) bool) bool {
	return slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
		jump, ok := a.(rules.Jump)
		return ok && matches(jump.Chain)
	})
}

// count returns the number of rules.
func (m tables) count() int {
	n := 0
	for _, t := range m {
		n += t.CountRules()
	}
	return n
}

// establishedPackets returns the number of packets that rules for older connections have accepted.
// The current tables must have the rules of the desired tables.
func establishedPackets(desired, current tables) uint64 {
	var n uint64
	for id, t := range desired {
		for _, c := range t.Chains {
			for i, r := range c.Rules {
				if r.KeepsEstablished() {
					n += current[id].Chain(c.Name).Rules[i].Hits.Packets
				}
			}
		}
	}
	return n
}

// compare returns the differences between two rulesets of iptables-legacy, which consist of tables
// and routes. It ignores Count actions, because every rule in the kernel has counters.
func compare(want, got rules.Ruleset) []rules.Difference {
	return rules.Compare(withoutCounters(want), withoutCounters(got))
}

// withoutCounters returns the ruleset without Count actions.
func withoutCounters(rs rules.Ruleset) rules.Ruleset {
	rs.Tables = slices.Clone(rs.Tables)
	for i := range rs.Tables {
		chains := slices.Clone(rs.Tables[i].Chains)
		for j := range chains {
			list := slices.Clone(chains[j].Rules)
			for k := range list {
				list[k].Actions = rules.WithoutCount(list[k].Actions)
			}
			chains[j].Rules = list
		}
		rs.Tables[i].Chains = chains
	}
	return rs
}

// ReadTables returns all iptables-legacy tables in the namespace (nil: the current one), IPv4
// first. A match or target that the model does not support becomes [rules.Unknown]. If some tables
// cannot be read, the error names them, and the result contains the other tables. ReadTables
// creates no table. It needs the privileges of [xtables.Tables] and [xtables.Reader.Read], whose
// limit applies to all tables together.
func ReadTables(ns *netns.NS) ([]rules.Table, error) {
	ids, err := xtables.Tables(ns)
	if err != nil {
		return nil, fmt.Errorf("read the iptables-legacy tables: %w", err)
	}
	var tables []rules.Table
	var errs []error
	var r xtables.Reader
	for _, id := range ids {
		t, err := r.Read(ns, id.Family, id.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tables = append(tables, *DecodeTable(t))
	}
	return tables, errors.Join(errs...)
}
