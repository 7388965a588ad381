package rulestest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestUnknowns(t *testing.T) {
	unknown := func(text string) rules.Unknown { return rules.Unknown{Text: text} }
	rule := func(matches []rules.Match, actions ...rules.Action) rules.Rule {
		return rules.Rule{Matches: matches, Actions: actions}
	}
	tuple := rules.MatchTuple{Alternatives: [][]rules.Match{{unknown("in a tuple")}}}
	tables := []rules.Table{{Name: "nat", Chains: []rules.Chain{
		{Name: "PREROUTING", Base: &rules.Base{Hook: rules.Prerouting}, Rules: []rules.Rule{
			rule([]rules.Match{unknown("before a jump")}, rules.Jump{Chain: "DNAT"}),
		}},
		{Name: "POSTROUTING", Base: &rules.Base{Hook: rules.Postrouting}, Rules: []rules.Rule{
			rule(nil, rules.Jump{Chain: "SNAT"}),
		}},
		{Name: "DNAT", Rules: []rules.Rule{
			rule([]rules.Match{tuple}),
			rule(nil, rules.Jump{Chain: "DNAT"}),
			rule(nil, unknown("an action"), rules.Require{Match: unknown("following an action")}),
			rule(nil, unknown("an action")),
		}},
		{Name: "SNAT", Rules: []rules.Rule{rule(nil, unknown("at another hook"))}},
		{Name: "MAP", Rules: []rules.Rule{rule(nil, unknown("in a map's chain"))}},
	}}}
	want := `prerouting: 4 of 5 rules
	an action
	before a jump
	following an action
	in a tuple
not reached: 1 of 1 rules
	in a map's chain
`
	if diff := cmp.Diff(want, rulestest.Unknowns(tables)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
