package rules_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
)

func TestBaseChainsRunInTheKernelsOrder(t *testing.T) {
	type bases = []rules.Base
	const filter, nat, route = rules.Filter, rules.NAT, rules.Route
	const pre, post, out = rules.Prerouting, rules.Postrouting, rules.Output
	for _, tc := range []struct {
		name   string
		hook   rules.Hook
		chains bases // named a, b, c and so on
		want   string
	}{
		{
			"in ascending priority", out,
			bases{{Type: route, Hook: out, Priority: 7}, {Hook: out, Priority: -300}, {Hook: pre}},
			"b a",
		},
		{
			"at equal priority in the order of the ruleset", out,
			bases{{Hook: out}, {Hook: out}},
			"a b",
		},
		{
			"at equal priority in the kernel's order", out,
			bases{{Hook: out, Order: 1}, {Hook: out}, {Hook: out, Order: -1}},
			"c b a",
		},
		{
			"priority before order", out,
			bases{{Hook: out, Priority: -1, Order: 5}, {Hook: out}},
			"a b",
		},
		{"NAT at the kernel's NAT priority", out, bases{
			{Hook: out, Priority: 0},
			{Type: nat, Hook: out, Priority: 5},
			{Hook: out, Priority: -105},
			{Type: nat, Hook: out, Priority: -199},
		}, "c d b a"},
		{
			"source NAT after the filter", post,
			bases{{Type: nat, Hook: post, Priority: -100}, {Hook: post, Priority: 99}},
			"b a",
		},
		{
			"NAT chains in the order of their priorities", pre,
			bases{{Type: nat, Hook: pre, Priority: -100}, {Type: nat, Hook: pre, Priority: -110}},
			"b a",
		},
		{"NAT chains of equal priority in the kernel's order", pre, bases{
			{Type: nat, Hook: pre, Priority: -100, Order: 1},
			{Type: nat, Hook: pre, Priority: -100},
		}, "b a"},
		{
			"a filter at NAT's priority before NAT, if the kernel's order is unknown", pre,
			bases{{Type: nat, Hook: pre, Priority: -110}, {Hook: pre, Priority: -100}},
			"b a",
		},
		{"a filter at NAT's priority after NAT, in the kernel's order", pre, bases{
			{Type: nat, Hook: pre, Priority: -110}, {Hook: pre, Priority: -100, Order: 1},
		}, "a b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rs := rules.Ruleset{Tables: []rules.Table{{}}}
			for i := range tc.chains {
				rs.Tables[0].Chains = append(rs.Tables[0].Chains, rules.Chain{
					Name: string(rune('a' + i)), Base: &tc.chains[i],
				})
			}
			var got []string
			for _, c := range rs.BaseChains(tc.hook) {
				got = append(got, c.Chain.Name)
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("the order of the chains is %s, want %s", text, tc.want)
			}
		})
	}
}

// Order is not compared, because it depends on the other chains at the hook.
func TestOrderOfChainsIsNotCompared(t *testing.T) {
	with := func(b *rules.Base) rules.Ruleset {
		return rules.Ruleset{Tables: []rules.Table{{Chains: []rules.Chain{{Base: b}}}}}
	}
	if !rules.Equal(with(&rules.Base{Order: 1}), with(&rules.Base{Order: 2})) {
		t.Error("chains that differ only in Order are not equal, want equal")
	}
	if rules.Equal(with(&rules.Base{Order: 1}), with(&rules.Base{Priority: 1})) ||
		rules.Equal(with(nil), with(&rules.Base{})) ||
		rules.Equal(with(&rules.Base{}), with(nil)) || !rules.Equal(with(nil), with(nil)) {
		t.Error("want different priorities to differ, and a chain without hook to equal only itself")
	}
}
