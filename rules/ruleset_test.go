package rules_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestReachableFrom lists the chains that are reached from given chains, in a table in which two
// chains jump to each other.
func TestReachableFrom(t *testing.T) {
	chain := func(name string, targets ...string) rules.Chain {
		c := rules.Chain{Name: name}
		for _, target := range targets {
			c.Rules = append(c.Rules, rules.Rule{Actions: []rules.Action{rules.Jump{Chain: target}}})
		}
		return c
	}
	table := rules.Table{Chains: []rules.Chain{
		chain("in", "shared", "missing"), chain("out", "shared", "loop"), chain("shared"),
		chain("loop", "back"), chain("back", "loop"), chain("unused", "shared"),
	}}
	for _, tc := range []struct{ from, want []string }{
		{nil, nil},
		{[]string{"in"}, []string{"shared", "in"}},
		{[]string{"in", "out", "in"}, []string{"shared", "in", "back", "loop", "out"}},
	} {
		var from []*rules.Chain
		for _, name := range tc.from {
			from = append(from, table.Chain(name))
		}
		var got []string
		for _, c := range table.ReachableFrom(from...) {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("from %q: %q, want %q", tc.from, got, tc.want)
		}
	}
}

// TestReachableFromUnknown lists the chains that are reached from a chain with an unsupported match
// or action. An unsupported action may be a verdict map of nftables, which may jump to each
// user-defined chain of the table. A match or an extension of xtables cannot jump.
func TestReachableFromUnknown(t *testing.T) {
	lookup := rules.Unknown{Text: "lookup"}
	quota := rules.Unknown{Text: "quota", Effect: rules.ReadsHistory}
	for _, tc := range []struct {
		name string
		rule rules.Rule
		want []string
	}{
		{"an action with any effect", rules.Rule{Actions: []rules.Action{lookup}}, []string{"a", "b", "in"}},
		{"a match", rules.Rule{Matches: []rules.Match{quota}}, []string{"in"}},
		{"an action of xtables", rules.Rule{Actions: []rules.Action{lookup}, XTables: true}, []string{"in"}},
	} {
		table := rules.Table{Chains: []rules.Chain{
			{Name: "in", Base: &rules.Base{}, Rules: []rules.Rule{tc.rule}},
			{Name: "out", Base: &rules.Base{}},
			{Name: "b", Rules: []rules.Rule{{Actions: []rules.Action{rules.Jump{Chain: "a"}}}}},
			{Name: "a", Rules: []rules.Rule{{Actions: []rules.Action{lookup}}}},
		}}
		var got []string
		for _, c := range table.ReachableFrom(table.Chain("in")) {
			got = append(got, c.Name)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
