package foreign_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/compat/nftlist"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestFiltersAreEvaluatedIfOtherRulesLetPacketsBypassTheProxy combines a chain that filters packets
// with rules that let packets bypass the proxy unless the filter drops them.
func TestFiltersAreEvaluatedIfOtherRulesLetPacketsBypassTheProxy(t *testing.T) {
	const notrack = `table ip a { chain out { type filter hook output priority -300; tcp dport 8080 notrack; }; }
	`
	for _, row := range []struct {
		name, rules string
		verdict     foreign.Verdict
	}{
		{"no filter", notrack, foreign.Bypassed},
		{
			"the filter drops the packets",
			notrack + "table ip b { chain out { type filter hook output priority 0; tcp dport 8080 drop; }; }",
			foreign.None,
		},
		{
			"the policy of the filter drops the packets",
			notrack + "table ip b { chain out { type filter hook output priority 0; policy drop; tcp dport 80 accept; }; }",
			foreign.None,
		},
		{
			"the filter drops other packets",
			notrack + "table ip b { chain out { type filter hook output priority 0; tcp dport 80 drop; }; }",
			foreign.Bypassed,
		},
		{
			"the filter jumps to a chain that drops the packets", notrack + `table ip b {
				chain others { drop; }
				chain out { type filter hook output priority 0; tcp dport 80 accept; jump others; }
			}`, foreign.None,
		},
		{
			"the filter jumps to a chain that changes packets", `table ip b {
				chain others { tcp dport 8080 notrack; }
				chain out { type filter hook output priority -300; tcp dport 80 accept; jump others; }
			}`, foreign.Bypassed,
		},
		{"a chain of type nat has only a filter", `table ip b {
			chain out { type nat hook output priority -150; tcp dport 8080 accept; }
		}`, foreign.None},
		{"IPv6 only", "table ip6 b { chain out { type filter hook output priority -300; tcp dport 8080 notrack; }; }", foreign.Bypassed},
		{"both families", "table inet b { chain out { type filter hook output priority -300; tcp dport 8080 notrack; }; }", foreign.Bypassed},
	} {
		t.Run(row.name, func(t *testing.T) {
			others, err := nftlist.Parse("rules", strings.NewReader(row.rules))
			if err != nil {
				t.Fatal(err)
			}
			desired := captureAll()
			live := desired
			live.Tables = append(others.Tables, desired.Tables...)
			found := foreign.Decide(compat.Live{Ruleset: live, LoopbackName: "lo"}, desired, diff.DefaultBudget)
			if found.Verdict() != row.verdict || len(found.Unknown) > 0 {
				t.Errorf("verdict %s, unknown %q, want %s", found.Verdict(), found.Unknown, row.verdict)
			}
		})
	}
}

// TestOrdersAreTriedForEachFamily inspects chains of unknown order: two of IPv4 and two of IPv6 at
// each of two positions. Packets of a family meet only two orders at each position. The present
// order is restored.
func TestOrdersAreTriedForEachFamily(t *testing.T) {
	var live compat.Live
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		for _, name := range []string{"a", "b"} {
			t := rules.Table{Family: f, Name: name}
			for _, priority := range []int{-150, 0} {
				t.Chains = append(t.Chains, rules.Chain{
					Name: "c", Base: &rules.Base{Type: rules.Filter, Hook: rules.Output, Priority: priority},
					Rules: []rules.Rule{{Actions: []rules.Action{rules.SetMark{Value: 1, Mask: 1}}}},
				})
			}
			live.Ruleset.Tables = append(live.Ruleset.Tables, t)
		}
	}
	orders := []int{3, 1, 0, 2}
	for i := range 2 {
		a := compat.Ambiguity{Hook: rules.Output}
		for j := range live.Ruleset.Tables {
			t := &live.Ruleset.Tables[j]
			t.Chains[i].Base.Order = orders[j]
			a.Chains = append(a.Chains, rules.ChainRef{Table: t, Chain: &t.Chains[i]})
		}
		live.Ambiguous = append(live.Ambiguous, a)
	}
	desired := captureAll()
	live.Ruleset.Tables = append(live.Ruleset.Tables, desired.Tables...)
	live.Ruleset.Routing, live.LoopbackName = desired.Routing, "lo"
	found := foreign.Decide(live, desired, diff.DefaultBudget)
	if found.Verdict() != foreign.None {
		t.Errorf("verdict %s, want %s: %q", found.Verdict(), foreign.None, found.Messages())
	}
	for _, a := range live.Ambiguous {
		for j, c := range a.Chains {
			if c.Chain.Base.Order != orders[j] {
				t.Errorf("table %s %s: order %d, want %d", c.Table.Family, c.Table.Name, c.Chain.Base.Order, orders[j])
			}
		}
	}
}

// TestRulesThatNoPacketMeetsDoNotReplaceSluicesRules inspects a namespace without Sluice's rules,
// in which traffic of at least one family bypasses the proxy.
func TestRulesThatNoPacketMeetsDoNotReplaceSluicesRules(t *testing.T) {
	onlyIPv4 := slices.Clone(captureAll().Tables)
	for i := range onlyIPv4 {
		onlyIPv4[i].Family, onlyIPv4[i].Name = rules.IPv4, "own"
	}
	const unused = "table ip a { chain ISTIO_OUTPUT { return; }; }\n"
	check := func(name string, tables []rules.Table) {
		t.Run(name, func(t *testing.T) {
			live := compat.Live{Ruleset: rules.Ruleset{Tables: tables}, LoopbackName: "lo"}
			found := foreign.Decide(live, captureAll(), diff.DefaultBudget)
			if found.Verdict() != foreign.Bypassed {
				t.Errorf("verdict %s, want %s: %q", found.Verdict(), foreign.Bypassed, found.Messages())
			}
		})
	}
	for name, text := range map[string]string{
		"a chain that nothing uses":       unused,
		"a Sluice table without chains":   "table inet sluice { }\n" + unused,
		"a Sluice table without rules":    "table inet sluice { chain nat-output { type nat hook output priority -100; }; }\n" + unused,
		"a chain that only drops packets": "table ip a { chain out { type filter hook output priority 0; tcp dport 22 drop; }; }",
		"no rules":                        "table ip a { }",
	} {
		others, err := nftlist.Parse("rules", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		check(name, others.Tables)
	}
	for name, empty := range map[string]rules.Table{
		"Sluice table":        {Family: rules.Inet, Name: rules.TableName},
		"legacy Sluice chain": {Family: rules.IPv4, Name: "raw", XTables: true, Chains: []rules.Chain{{Name: "SLUICE_x"}}},
	} {
		check("an empty "+name, []rules.Table{empty})
		check("an empty "+name+", and rules for IPv4", append([]rules.Table{empty}, onlyIPv4...))
	}
}

// TestOnlyFiltersAreRemoved verifies which chains withoutFilters changes. A NAT chain without rules
// keeps its place among the chains of unknown order, because it affects chains of other types.
func TestOnlyFiltersAreRemoved(t *testing.T) {
	for _, row := range []struct {
		name, rules string
		changed     bool
		ambiguous   int // the number of chains of unknown order in the result
	}{
		{"a filter", "type filter hook output priority -100; tcp dport 22 drop;", true, 0},
		{"a policy", "type filter hook output priority -100; policy drop;", true, 0},
		{"a filter without rules", "type filter hook output priority -100;", false, 2},
		{"a NAT chain without rules", "type nat hook output priority -100;", false, 2},
		{"a NAT chain", "type nat hook output priority -100; tcp dport 22 accept;", false, 2},
		{"a mark", "type filter hook output priority -100; tcp dport 22 meta mark set 1;", false, 2},
	} {
		t.Run(row.name, func(t *testing.T) {
			parsed, err := nftlist.Parse("rules", strings.NewReader("table ip a { chain c { "+row.rules+" }; }\n"+
				"table ip b { chain c { type filter hook output priority -100; meta mark set 5; }; }"))
			if err != nil {
				t.Fatal(err)
			}
			live := compat.Live{Ruleset: rules.Ruleset{Tables: parsed.Tables}}
			live.Ambiguous = []compat.Ambiguity{{Hook: rules.Output, Chains: live.Ruleset.BaseChains(rules.Output)}}
			filtered, changed := foreign.WithoutFilters(&live)
			ambiguous := 0
			for _, a := range filtered.Ambiguous {
				ambiguous += len(a.Chains)
			}
			if changed != row.changed || ambiguous != row.ambiguous {
				t.Errorf("changed %t, %d chains of unknown order; want %t, %d", changed, ambiguous, row.changed,
					row.ambiguous)
			}
		})
	}
}
