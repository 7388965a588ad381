package diff_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/save"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// legacyIPv6 parses rules of table mangle in the format of ip6tables-legacy-save.
func legacyIPv6(t *testing.T, lines string) rules.Ruleset {
	t.Helper()
	tables, err := save.Parse(rules.IPv6, "test", strings.NewReader("*mangle\n"+lines+"COMMIT\n"))
	if err != nil {
		t.Fatal(err)
	}
	return rules.Ruleset{Tables: tables}
}

// TestProtocolAfterAuthenticationHeader verifies that the outcome of an IPv6 packet with an
// authentication header is unknown if a rule of iptables-legacy compares the protocol. A decision
// omits such packets if rules of nftables compare the protocol too.
func TestProtocolAfterAuthenticationHeader(t *testing.T) {
	nftables := func(rule rules.Rule) rules.Ruleset {
		return rules.Ruleset{Tables: []rules.Table{{
			Family: rules.IPv6, Name: "t", Chains: []rules.Chain{mangleIn(rule)},
		}}}
	}
	native := nftables(when(rules.Drop, tcp))
	legacy := legacyIPv6(t, "-A PREROUTING -p tcp -j DROP\n")
	for _, tc := range []struct {
		name, packet string
		ruleset      rules.Ruleset
		undecided    bool
	}{
		{"a rule of iptables-legacy", "in 51 fd00::9 > fd00::5", legacy, true},
		{
			"a negated rule of iptables-legacy", "in 51 fd00::9 > fd00::5",
			legacyIPv6(t, "-A PREROUTING ! -p tcp -j DROP\n"), true,
		},
		{"another protocol", "in 50 fd00::9 > fd00::5", legacy, false},
		{"a rule of nftables", "in 51 fd00::9 > fd00::5", native, false},
		{"an IPv4 packet", "in 51 10.9.9.9 > 10.244.1.5", legacy, false},
		{
			"a rule without a protocol", "in 51 fd00::9 > fd00::5",
			legacyIPv6(t, "-A PREROUTING -i eth0 -j DROP\n"), false,
		},
	} {
		p := must(rules.ParsePacket(tc.packet))
		if got := diff.Explain(&tc.ruleset, p).Outcome; (got.Undecided != "") != tc.undecided {
			t.Errorf("%s: outcome %s, want undecided %t", tc.name, got, tc.undecided)
		}
	}
	side := func(rs rules.Ruleset) diff.Side { return diff.Side{Ruleset: rs} }
	none := legacyIPv6(t, "")
	if r := diff.Decide(side(legacyIPv6(t, "-A PREROUTING -p ah -j DROP\n")), side(none),
		diff.Options{}); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("a rule that never matches: verdict %s, want %s", r.StrictVerdict(), diff.Equivalent)
	}
	afterAction := nftables(rules.Rule{
		Actions: []rules.Action{setMark(1, 1), rules.Require{Match: tcp}, rules.Drop},
	})
	inTuple := nftables(when(rules.Drop, rules.MatchTuple{
		Alternatives: [][]rules.Match{{tcp, marked(1, 1)}},
	}))
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		omits       bool
	}{
		{"iptables-legacy and nftables with a protocol after an action", legacy, afterAction, true},
		{"iptables-legacy and nftables with a protocol in a tuple", legacy, inTuple, true},
		{"iptables-legacy and nftables", legacy, native, true},
		{"nftables and iptables-legacy", native, legacy, true},
		{"iptables-legacy only", legacy, legacy, false},
		{"nftables only", native, native, false},
		{"iptables-legacy without rules", none, native, false},
	} {
		if got := diff.OmitsAuthenticationHeaders(&tc.left, &tc.right); got != tc.omits {
			t.Errorf("%s: authentication headers omitted %t, want %t", tc.name, got, tc.omits)
		}
	}
}
