package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRandomMatchesOfRulesWithUnknownParts compares rules with the same random match. If the rule
// of only one side also has an unsupported part, it is unknown whether the random matches agree.
func TestRandomMatchesOfRulesWithUnknownParts(t *testing.T) {
	limit := rules.Unknown{Text: "limit rate 5/second", Effect: rules.ReadsVarying}
	unknown := rules.Unknown{Text: "xt strange", Effect: rules.Reads}
	redirected := when(rules.RedirectTo{Port: 1}, tcp, limit)
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{
			"an unknown action", ruleset(natIn(redirected)),
			ruleset(natIn(when(rules.Unknown{Text: "redirect to :1"}, tcp, limit))),
			diff.Undecidable,
		},
		{
			"an unknown condition", ruleset(mangleIn(when(setMark(1, 1), tcp, limit))),
			ruleset(mangleIn(when(setMark(1, 1), tcp, unknown, limit))), diff.Undecidable,
		},
		{
			"known actions", ruleset(natIn(redirected)),
			ruleset(natIn(when(rules.RedirectTo{Port: 2}, tcp, limit))), diff.Different,
		},
		{
			"another unknown rule for other packets",
			ruleset(natIn(redirected, when(rules.Drop, protocol(rules.UDP), unknown))),
			ruleset(natIn(when(rules.RedirectTo{Port: 2}, tcp, limit))), diff.Different,
		},
		{
			"a difference for each result of the random match",
			ruleset(mangleIn(when(setMark(1, 1), tcp, unknown, limit), when(rules.Drop, tcp))),
			ruleset(mangleIn(when(setMark(1, 1), tcp, limit))), diff.Different,
		},
	} {
		r := decide(tc.left, tc.right)
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s: classes %v, undecided %v", tc.name, got, tc.want,
				classes(r), r.Undecided)
		}
	}
}

// TestRandomMatchOfRulesWithNamedSets verifies that two rules with a random match are the same rule
// only if the elements of their named sets are equal.
func TestRandomMatchOfRulesWithNamedSets(t *testing.T) {
	limit := rules.Unknown{Text: "limit rate 5/second", Effect: rules.ReadsVarying, Data: "1"}
	limited := func(set string, members ...string) rules.Ruleset {
		m := to(members...)
		m.Set = set
		return ruleset(mangleIn(when(rules.Drop, to("10.0.0.2/32")), when(rules.Drop, m, limit)))
	}
	for _, set := range []string{"", "s"} {
		both, one := limited(set, "10.0.0.1/32", "10.0.0.2/32"), limited(set, "10.0.0.1/32")
		if r := decide(both, one); r.StrictVerdict() == diff.Equivalent {
			t.Errorf("set %q, other elements: verdict %s, want another one", set, diff.Equivalent)
		}
		if r := decide(one, one); r.StrictVerdict() != diff.Equivalent {
			t.Errorf("set %q, equal elements: verdict %s, want %s", set, r.StrictVerdict(),
				diff.Equivalent)
		}
	}
}

// TestRandomMatchesOfChainsWithSpaces compares a random match in the chain "b c" of the table "a"
// with the same one in the chain "c" of the table "a b".
func TestRandomMatchesOfChainsWithSpaces(t *testing.T) {
	limit := rules.Unknown{Text: "limit rate 5/second", Effect: rules.ReadsVarying}
	in := func(table, name string) rules.Ruleset {
		c := mangleIn(when(rules.Drop, tcp, limit))
		c.Name = name
		rs := ruleset(c)
		rs.Tables[0].Name = table
		return rs
	}
	if r := decide(in("a", "b c"), in("a b", "c")); r.StrictVerdict() == diff.Equivalent {
		t.Errorf("verdict %s, want another one", diff.Equivalent)
	}
}
