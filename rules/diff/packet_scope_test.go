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
				t.Errorf("%s, want %s", verdict, tc.verdict)
			}
		})
	}
}
