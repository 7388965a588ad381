package rulestest_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

func TestReplaceIPSets(t *testing.T) {
	listed := func(name string) *rules.Rule {
		return &rules.Rule{Matches: []rules.Match{
			rules.MatchListed{Not: true, List: "ipset " + name, Parts: "dst", Destination: true},
		}}
	}
	pods, empty := listed("pods"), listed("empty")
	rulestest.ReplaceIPSets(t, rules.Ruleset{Tables: []rules.Table{{
		Chains: []rules.Chain{{Rules: []rules.Rule{*pods, *empty}}},
	}}}, map[string][]netip.Addr{
		"pods":  {netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")},
		"other": {netip.MustParseAddr("10.0.0.9")},
	})
	want := "ip daddr != 10.0.0.1-10.0.0.2"
	if diff := cmp.Diff(want, pods.Matches[0].String()); diff != "" {
		t.Errorf("the match of a set with two members (-want +got):\n%s", diff)
	}
	if m, ok := empty.Matches[0].(rules.MatchAddr); !ok || len(m.Ranges) > 0 {
		t.Errorf("the empty set is replaced by %v, want a match of no address", empty.Matches[0])
	}
}
