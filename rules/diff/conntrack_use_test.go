package diff_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestNATChainsWithoutConntrack verifies that it is unknown whether packets traverse NAT chains,
// unless a rule certainly enables conntrack for their family (NATNeedsConntrack).
func TestNATChainsWithoutConntrack(t *testing.T) {
	drops := natIn(when(rules.Drop, tcp))
	at := func(action rules.Action, matches ...rules.Match) rules.Chain {
		return base(rules.Filter, rules.Input, 0, when(action, matches...))
	}
	isNew := rules.MatchState{States: rules.States(rules.New)}
	tuple := rules.MatchTuple{Alternatives: [][]rules.Match{{isNew, tcp}}}
	unknown := rules.Unknown{Text: "ct id 5", Effect: rules.Reads}
	toIPv4 := base(rules.NAT, rules.Output, -100, when(rules.DNATTo{Addr: netip.MustParseAddr("10.0.0.1")}, tcp))
	none := ruleset(at(rules.Count{}))
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"no rule needs conntrack", ruleset(drops), none, diff.Undecidable},
		{"the same rules, none of which needs conntrack", ruleset(drops), ruleset(drops), diff.Equivalent},
		{
			"a rule of one side reads the state", ruleset(drops, at(rules.Count{}, isNew)),
			ruleset(drops), diff.Undecidable,
		},
		{"a rule reads the state", ruleset(drops, at(rules.Count{}, isNew)), none, diff.Different},
		{"a rule reads the state in a tuple", ruleset(drops, at(rules.Count{}, tuple)), none, diff.Different},
		{"a rule saves a mark", ruleset(drops, at(rules.SaveMark{})), none, diff.Different},
		{"a rule disables conntrack", ruleset(drops, at(rules.Notrack{})), none, diff.Undecidable},
		{
			"a rule looks up a socket", ruleset(drops, at(rules.Count{}, rules.MatchSocket{})),
			none, diff.Undecidable,
		},
		{
			"the same unknown expression", ruleset(drops, at(rules.Count{}, unknown)),
			ruleset(drops, at(rules.Count{}, unknown)), diff.Equivalent,
		},
		{
			"an unknown expression on one side", ruleset(drops, at(rules.Count{}, unknown)),
			ruleset(drops), diff.Undecidable,
		},
		{
			"a chain without rules", ruleset(natIn()), none, diff.Equivalent,
		},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left}, diff.Side{Ruleset: tc.right}, diff.Options{})
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, tc.want)
		}
	}
	for family, want := range map[rules.Family]diff.Verdict{
		rules.IPv4: diff.Different, rules.IPv6: diff.Undecidable,
	} {
		left, right := ruleset(drops, toIPv4), ruleset(toIPv4)
		left.Tables[0].Family, right.Tables[0].Family = rules.Inet, rules.Inet
		r := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right},
			diff.Options{Families: []rules.Family{family}})
		if got := r.StrictVerdict(); got != want {
			t.Errorf("NAT to an IPv4 address, packets of %s: verdict %s, want %s", family, got, want)
		}
	}
}
