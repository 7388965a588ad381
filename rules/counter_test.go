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
					t.Fatalf("%s: the counter is not the first action", &c.Rules[i])
				}
			}
		}
		if !rules.Equal(with.WithoutCounters(), without) {
			t.Fatalf("%s\nwithout its counters differs from\n%s", with, without)
		}
		if without.HasCounters() || with.HasCounters() != (len(with.Tables[0].Chains) > 0) {
			t.Fatalf("HasCounters is %t without counters, want false, and %t with counters in %d chains",
				without.HasCounters(), with.HasCounters(), len(with.Tables[0].Chains))
		}
	})
}
