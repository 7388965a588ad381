package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestResetsAreComparedIfARuleSendsThem verifies that a rule that matches only the TCP resets of
// reject rules makes a difference only if a ruleset may send such resets.
func TestResetsAreComparedIfARuleSendsThem(t *testing.T) {
	matchesResets := base(rules.Filter, rules.Output, -300,
		when(rules.Drop, tcp, rules.MatchState{States: rules.States(rules.Related)}))
	for _, tc := range []struct {
		name    string
		action  rules.Action
		verdict diff.Verdict
	}{
		{"no rule sends resets", rules.Reject{With: "icmpx port-unreachable"}, diff.Equivalent},
		{"a rule sends resets", rules.Reject{With: "tcp reset"}, diff.Different},
		{"a rule may do anything", rules.Unknown{Text: "other"}, diff.Different},
	} {
		t.Run(tc.name, func(t *testing.T) {
			input := base(rules.Filter, rules.Input, 0, when(tc.action, tcp))
			got := decide(ruleset(matchesResets, input), ruleset(input))
			if verdict := got.StrictVerdict(); verdict != tc.verdict {
				t.Errorf("verdict %s, want %s", verdict, tc.verdict)
			}
		})
	}
}

// TestTranslatedPacketsAreComparedIfARuleMatchesThem verifies that packets of connections that were
// translated earlier are compared if a rule matches on the translation, alone or together with
// other fields.
func TestTranslatedPacketsAreComparedIfARuleMatchesThem(t *testing.T) {
	translated := rules.MatchStatus{Status: rules.StatusDNAT}
	for name, m := range map[string]rules.Match{
		"status":          translated,
		"state":           rules.MatchState{States: rules.States(rules.DNAT)},
		"tuple of status": rules.MatchTuple{Alternatives: [][]rules.Match{{translated, tcp}}},
	} {
		got := decide(ruleset(base(rules.Filter, rules.Output, -150, when(rules.Drop, m))), ruleset())
		if verdict := got.StrictVerdict(); verdict != diff.Different {
			t.Errorf("%s: verdict %s, want %s", name, verdict, diff.Different)
		}
	}
}
