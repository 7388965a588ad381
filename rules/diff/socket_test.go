package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestSocketsBeforeConntrack verifies that a decision does not assume that the kernel finds the
// same socket before and after conntrack. For a reply to a translated source, the kernel finds the
// socket by the connection.
func TestSocketsBeforeConntrack(t *testing.T) {
	at := func(priority int) rules.Ruleset {
		// A chain after NAT makes connections with translations relevant.
		return ruleset(base(rules.Filter, rules.Prerouting, priority,
			when(rules.Drop, rules.MatchSocket{Kind: rules.NFTSocket})),
			base(rules.Filter, rules.Prerouting, -50, when(setMark(1, everyBit), tcp)))
	}
	if r := decide(at(-300), at(-150)); r.StrictVerdict() == diff.Equivalent {
		t.Errorf("a socket match before conntrack and one after it: verdict %s, want another",
			diff.Equivalent)
	}
	if r := decide(at(-160), at(-150)); r.StrictVerdict() != diff.Equivalent {
		t.Errorf("two socket matches after conntrack: verdict %s, want %s", r.StrictVerdict(),
			diff.Equivalent)
	}
}

// TestCgroupOfTheReceiver verifies that a decision does not assume that nft compares only the
// cgroup of the sender. At prerouting nft looks up the socket that receives the packet.
func TestCgroupOfTheReceiver(t *testing.T) {
	in := func(xtables bool, h rules.Hook, others ...rules.Match) rules.Ruleset {
		rule := when(rules.Drop, append(others, rules.MatchCgroup{Path: "a", Level: 1})...)
		rule.XTables = xtables
		return ruleset(base(rules.Filter, h, -150, rule))
	}
	onLoopback := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	for _, row := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{"nft at prerouting", in(false, rules.Prerouting), ruleset(), diff.Undecidable},
		{
			"nft for packets on lo", in(false, rules.Prerouting, onLoopback), ruleset(),
			diff.Undecidable,
		},
		{"xtables at prerouting", in(true, rules.Prerouting), ruleset(), diff.Equivalent},
		{
			"the same rule", in(false, rules.Prerouting), in(false, rules.Prerouting),
			diff.Equivalent,
		},
		{"nft at output", in(false, rules.Output), ruleset(), diff.Different},
	} {
		t.Run(row.name, func(t *testing.T) {
			if r := decide(row.left, row.right); r.StrictVerdict() != row.want {
				t.Errorf("verdict %s, want %s", r.StrictVerdict(), row.want)
			}
		})
	}
}
