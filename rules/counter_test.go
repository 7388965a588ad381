package rules_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/rules"
)

func TestCountersAreInEachRuleAndChangeNothingElse(t *testing.T) {
	redirects := anyRedirect()
	rapid.Check(t, func(t *rapid.T) {
		r := redirects.Draw(t, "redirect")
		r.KeepEstablished = rapid.Bool().Draw(t, "keep established")
		without := rules.MustCompile(r)
		r.Counters = true
		with := rules.MustCompile(r)
		for _, c := range with.Tables[0].Chains {
			for i := range c.Rules {
				if actions := c.Rules[i].Actions; actions[0] != rules.Action(rules.Count{}) {
					t.Fatalf("%s: does not count first", &c.Rules[i])
				}
			}
		}
		if !rules.Equal(with.WithoutCounters(), without) {
			t.Fatalf("%s\nwithout its counters is not\n%s", with, without)
		}
		if without.Counters() || with.Counters() != (len(with.Tables[0].Chains) > 0) {
			t.Fatalf("counters %v without and %v with them", without.Counters(), with.Counters())
		}
	})
}
