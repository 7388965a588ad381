package diff_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestHeaderChanges verifies that the evaluation continues after a change of a header field that
// the model does not represent, and that it is unknown whether different changes have the same
// result.
func TestHeaderChanges(t *testing.T) {
	change := func(text string) rules.Action {
		return rules.Unknown{
			Text: text, Effect: rules.WritesHeader, State: rules.RoutedHeader,
			Ignores: rules.AllInputs,
		}
	}
	reads := rules.Unknown{Text: "ttl 5", Effect: rules.Reads}
	ttl, tos := when(change("ttl"), tcp), when(change("tos"), tcp)
	drop := when(rules.Drop, tcp)
	marks := base(rules.Filter, rules.Output, -300, when(setMark(1, everyBit)))
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"the same change", ruleset(mangleIn(ttl)), ruleset(mangleIn(ttl)), diff.Equivalent},
		{"a change on one side", ruleset(mangleIn(ttl)), ruleset(mangleIn()), diff.Undecidable},
		{"different changes", ruleset(mangleIn(ttl)), ruleset(mangleIn(tos)), diff.Undecidable},
		{
			"another order", ruleset(mangleIn(ttl, tos)), ruleset(mangleIn(tos, ttl)),
			diff.Undecidable,
		},
		{
			"a drop after the change on one side", ruleset(mangleIn(ttl, drop)), ruleset(mangleIn(ttl)),
			diff.Different,
		},
		{
			"changes of dropped packets", ruleset(mangleIn(ttl, drop)), ruleset(mangleIn(drop)),
			diff.Equivalent,
		},
		{
			"a condition after a change on one side",
			ruleset(mangleIn(ttl, when(rules.Drop, reads), drop)),
			ruleset(mangleIn(when(rules.Drop, reads), drop)), diff.Equivalent,
		},
		{
			"a condition after the change and before it",
			ruleset(mangleIn(ttl, when(setMark(1, 1), reads))),
			ruleset(mangleIn(when(setMark(1, 1), reads), ttl)), diff.Undecidable,
		},
		{"the same change in a route chain", ruleset(mangleOut(ttl)), ruleset(mangleOut(ttl)), diff.Equivalent},
		{
			"the same change in a route chain that reroutes packets with another mark", ruleset(marks, mangleOut(ttl)),
			ruleset(marks, mangleOut(ttl, when(rules.Count{}))), diff.Undecidable,
		},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left}, diff.Side{Ruleset: tc.right}, diff.Options{})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, tc.want)
		}
	}
}

// Many rules that change header fields do not exhaust the memory of an agent's budget.
func TestManyHeaderChanges(t *testing.T) {
	var list []rules.Rule
	for range 200 {
		list = append(list, when(rules.Unknown{
			Text: "ttl", Effect: rules.WritesHeader, Data: "1", Ignores: rules.AllInputs,
		}))
	}
	side := diff.Side{Ruleset: ruleset(mangleIn(list...))}
	r := diff.Decide(side, side, diff.Options{Budget: diff.Budget{Time: time.Minute, Memory: diff.AgentBudget.Memory}})
	if got := r.StrictVerdict(); got != diff.Equivalent {
		t.Errorf("verdict %s (%s), want %s", got, r.Exhausted, diff.Equivalent)
	}
}
