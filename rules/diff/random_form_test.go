package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRandomConditionsOfDifferentForms verifies that a limit of nftables may equal a limit of
// xtables with another text, and that two limits of one form with different texts differ.
func TestRandomConditionsOfDifferentForms(t *testing.T) {
	limit := func(text string) rules.Ruleset {
		return ruleset(mangleIn(when(rules.Drop,
			rules.Unknown{Text: text, Effect: rules.ReadsVarying, Data: text})))
	}
	for _, tc := range []struct {
		left, right string
		want        diff.Verdict
	}{
		{"limit rate 1/second", "-m limit --limit 1/sec", diff.Undecidable},
		{"limit rate 1/second", "match limit revision 0", diff.Undecidable},
		{"limit rate 1/second", "limit rate 2/second", diff.Different},
		{"-m limit --limit 1/sec", "-m limit --limit 2/sec", diff.Different},
		{"-m limit --limit 1/sec", "-m limit --limit 1/sec", diff.Equivalent},
	} {
		if r := decide(limit(tc.left), limit(tc.right)); r.StrictVerdict() != tc.want {
			t.Errorf("%s and %s: %s, want %s", tc.left, tc.right, r.StrictVerdict(), tc.want)
		}
	}
	// Without Data only the text of a limit is known.
	text := rules.Unknown{Text: "limit rate 1/second", Effect: rules.ReadsVarying}
	for _, tc := range []struct {
		right rules.Ruleset
		want  diff.Verdict
	}{
		{limit("limit rate 1/second"), diff.Equivalent},
		{limit("limit rate 2/second"), diff.Undecidable},
		{limit("-m limit --limit 1/sec"), diff.Undecidable},
		{ruleset(mangleIn(when(rules.Accept, text))), diff.Different},
		{ruleset(mangleIn(when(rules.Drop, text))), diff.Equivalent},
		{ruleset(), diff.Different},
	} {
		left := ruleset(mangleIn(when(rules.Drop, text)))
		if r := decide(left, tc.right); r.StrictVerdict() != tc.want {
			t.Errorf("a limit without data and %v: %s, want %s", tc.right, r.StrictVerdict(), tc.want)
		}
	}
	if r := decide(limit("-m limit --limit 1/sec"), ruleset()); r.StrictVerdict() != diff.Different {
		t.Errorf("a limit and no rule: %s, want %s", r.StrictVerdict(), diff.Different)
	}
}
