package rules_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

// TestReachableFrom lists the chains that are reached from base chains, in a table in which two
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
