package compat_test

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// wantEquivalent holds that every packet has the same outcome.
func wantEquivalent(t *rapid.T, rs rules.Ruleset, legacy compat.Legacy) {
	t.Helper()
	translated := rules.Ruleset{Tables: legacy.Tables, Routing: legacy.Routing}
	side := func(rs rules.Ruleset) diff.Side { return diff.Side{Ruleset: rs, RoutingKnown: true} }
	result := diff.Decide(side(rs), side(translated), diff.Options{})
	if result.Verdict(true) == diff.Equivalent {
		wantSameOutcomes(t, &rs, &translated)
		return
	}
	for _, c := range result.Classes {
		t.Errorf("%s\n  is     %s\n  but is %s", c.Witness, c.Outcome.Left.Outcome,
			c.Outcome.Right.Outcome)
	}
	t.Fatalf("%v\n%s\n%s", result.Routing, rs, translated)
}

// wantSameOutcomes tries packets one by one, those that cannot exist too.
func wantSameOutcomes(t *rapid.T, rs, translated *rules.Ruleset) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := anyPacket(random)
		is, becomes := diff.Explain(rs, p), diff.Explain(translated, p)
		if is.Outcome != becomes.Outcome {
			t.Fatalf("%s\n  is     %s\n  but is %s\n%s\n%s", p, is.Outcome, becomes.Outcome, rs,
				translated)
		}
	}
}

// What is compiled can be translated, and decides about every packet as it does.
func TestTranslationTreatsEveryPacketAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := rules.MustCompile(dice{t}.redirect())
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Fatalf("%v\n%s", err, rs)
		}
		wantEquivalent(t, rs, legacy)
	})
}

// Words that are combined in other ways than Compile does are translated right, or not at all.
func TestTranslationOfAnyRulesTreatsEveryPacketAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := dice{t}.ruleset()
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Skip(err)
		}
		wantEquivalent(t, rs, legacy)
	})
}
