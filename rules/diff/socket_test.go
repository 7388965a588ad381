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

// TestListenersAreIndependent verifies that a decision does not assume that either all listeners
// of tproxy rules exist or none.
func TestListenersAreIndependent(t *testing.T) {
	tproxy := func(port uint16, others ...rules.Action) rules.Rule {
		return rules.Rule{
			Matches: []rules.Match{tcp},
			Actions: append([]rules.Action{rules.TProxy{Port: port}}, others...),
		}
	}
	mark := when(rules.Drop, marked(1, everyBit))
	for _, row := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{
			"a second listener",
			ruleset(mangleIn(tproxy(15006, rules.Accept), tproxy(15008, rules.Accept))),
			ruleset(mangleIn(tproxy(15006, rules.Accept))), diff.Undecidable,
		},
		{
			"an earlier listener that is replaced",
			ruleset(mangleIn(tproxy(15006), tproxy(15001, rules.Accept))),
			ruleset(mangleIn(tproxy(15001, rules.Accept))), diff.Undecidable,
		},
		{
			"different listeners of packets that are dropped",
			ruleset(mangleIn(tproxy(15006, setMark(1, everyBit)), mark)),
			ruleset(mangleIn(tproxy(15008, setMark(1, everyBit)), mark)), diff.Undecidable,
		},
		{
			"the same two listeners",
			ruleset(mangleIn(tproxy(15006, rules.Accept), tproxy(15008, rules.Accept))),
			ruleset(mangleIn(tproxy(15006, rules.Accept), tproxy(15008, rules.Accept))),
			diff.Equivalent,
		},
		{
			"a repeated rule",
			ruleset(mangleIn(tproxy(15006, rules.Accept), tproxy(15006, rules.Accept))),
			ruleset(mangleIn(tproxy(15006, rules.Accept))), diff.Equivalent,
		},
		{
			"different listeners", ruleset(mangleIn(tproxy(15006, rules.Accept))),
			ruleset(mangleIn(tproxy(15008, rules.Accept))), diff.Different,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			if r := decide(row.left, row.right); r.StrictVerdict() != row.want {
				t.Errorf("verdict %s, want %s", r.StrictVerdict(), row.want)
			}
		})
	}
}
