package compat_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// wantEquivalent verifies that every packet has the same outcome with the ruleset and with its
// translation.
func wantEquivalent(t *rapid.T, rs rules.Ruleset, legacy compat.Legacy) {
	t.Helper()
	translated := translationOf(legacy)
	rs = withConntrack(rs)
	result := decide(rs, translated)
	if result.StrictVerdict() == diff.Equivalent {
		wantSameOutcomes(t, &rs, &translated)
		return
	}
	for _, c := range result.Classes {
		t.Errorf("%s has different outcomes:\n  original   %s\n  translated %s", c.Witness, c.Outcome.Left.Outcome,
			c.Outcome.Right.Outcome)
	}
	t.Fatalf("the translation is not equivalent; routing %v, undecided %v\n%s\n%s", result.Routing,
		result.Undecided, rs, translated)
}

// translationOf returns the translated ruleset.
func translationOf(legacy compat.Legacy) rules.Ruleset {
	return withConntrack(rules.Ruleset{Tables: legacy.Tables, Routing: legacy.Routing})
}

// onlyRetrackedAreUndecided reports whether no packet is treated differently, and the only
// undecided packets are invalid: the model does not represent each redirection of an invalid packet
// that conntrack tracks again in another zone on lo.
func onlyRetrackedAreUndecided(result diff.Result) bool {
	return len(result.Classes)+len(result.Routing) == 0 && len(result.Undecided) > 0 &&
		!result.MoreUndecided && !slices.ContainsFunc(result.Undecided, func(u diff.Undecided) bool {
		return u.Witness.State != rules.Invalid
	})
}

func decide(left, right rules.Ruleset) diff.Result {
	side := func(rs rules.Ruleset) diff.Side { return diff.Side{Ruleset: rs, RoutingKnown: true} }
	return diff.Decide(side(left), side(right), diff.Options{})
}

// withConntrack returns the ruleset with a rule that enables conntrack for both families. Otherwise
// a redirection of one family in an inet table would enable conntrack for both families, but the
// translated redirection only for one.
func withConntrack(rs rules.Ruleset) rules.Ruleset {
	rs.Tables = append(slices.Clip(rs.Tables), rules.Table{
		Name: "conntrack",
		Chains: []rules.Chain{{
			Name:  "input",
			Base:  &rules.Base{Type: rules.Filter, Hook: rules.Input},
			Rules: []rules.Rule{{Actions: []rules.Action{rules.SaveMark{}}}},
		}},
	})
	return rs
}

// wantSameOutcomes compares the outcomes of single packets, including impossible packets.
func wantSameOutcomes(t *rapid.T, rs, translated *rules.Ruleset) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		p := anyPacket(random)
		before, after := diff.Explain(rs, p).Outcome, diff.Explain(translated, p).Outcome
		if before != after {
			t.Fatalf("%s has different outcomes:\n  original   %s\n  translated %s\n%s\n%s", p, before,
				after, rs, translated)
		}
	}
}

// All compiled rulesets can be translated, and the translation is equivalent.
func TestTranslationKeepsEveryOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := rules.MustCompile(generator{t}.redirect())
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Fatalf("%v\n%s", err, rs)
		}
		wantEquivalent(t, rs, legacy)
	})
}

// Random combinations of matches and actions are translated to an equivalent ruleset, or rejected.
func TestTranslationOfRandomRulesKeepsEveryOutcome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rs := generator{t}.ruleset()
		legacy, err := compat.Translate(rs)
		if err != nil {
			t.Skip(err)
		}
		original, translated := withConntrack(rs), translationOf(legacy)
		if onlyRetrackedAreUndecided(decide(original, translated)) {
			wantSameOutcomes(t, &original, &translated)
			return
		}
		wantEquivalent(t, rs, legacy)
	})
}
