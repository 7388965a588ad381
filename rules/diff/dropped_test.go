package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestDropsBeforeConntrack verifies that two ways to drop the same packets are undecided only if
// they change states of connections differently and a rule depends on the states.
func TestDropsBeforeConntrack(t *testing.T) {
	eth1 := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "eth1"}}}
	lo := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	toLo := rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "lo"}}}
	established := rules.MatchState{States: rules.States(rules.Established)}
	reads := base(rules.Filter, rules.Prerouting, 10, when(setMark(1, 1), established))
	marks := base(rules.Filter, rules.Prerouting, 10, when(setMark(1, 1)))
	translates := natIn(when(redirect(15006), tcp))
	at := func(priority int, list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Prerouting, priority, list...)
	}
	drop := when(rules.Drop, eth1)
	untranslated := rules.MatchState{Not: true, States: rules.States(rules.SNAT, rules.DNAT)}
	first := rules.MatchState{States: rules.States(rules.New)}
	ignored := when(rules.Notrack{}, eth1)
	zone := when(rules.SetZone{Zone: 1}, eth1)
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{
			"before and after conntrack, and a rule reads the state",
			ruleset(at(-300, drop), reads), ruleset(at(-50, drop), reads), diff.Undecidable,
		},
		{
			"before and after conntrack, and NAT depends on the state",
			ruleset(at(-300, drop), translates), ruleset(at(-50, drop), translates),
			diff.Undecidable,
		},
		{
			"before and after conntrack, and no rule depends on the state",
			ruleset(at(-300, drop), marks), ruleset(at(-50, drop), marks), diff.Equivalent,
		},
		{
			"at conntrack's priority and after conntrack",
			ruleset(at(rules.ConntrackPriority, drop), reads), ruleset(at(-50, drop), reads),
			diff.Undecidable,
		},
		{
			"before conntrack at two priorities",
			ruleset(at(-310, drop), reads), ruleset(at(-300, drop), reads), diff.Equivalent,
		},
		{
			"before conntrack in one chain and in two",
			ruleset(at(-310, when(rules.Drop, eth1, tcp)), at(-300, drop), reads),
			ruleset(at(-300, drop), reads), diff.Equivalent,
		},
		{
			"after conntrack at two priorities",
			ruleset(at(-150, drop), reads), ruleset(at(0, drop), reads), diff.Equivalent,
		},
		{
			"after conntrack, but only one side tracks the packets",
			ruleset(at(-300, ignored), at(0, drop), reads), ruleset(at(0, drop), reads),
			diff.Undecidable,
		},
		{
			"after conntrack without tracking, and before it",
			ruleset(at(-300, ignored), at(0, drop), reads), ruleset(at(-300, drop), reads),
			diff.Equivalent,
		},
		{
			"after conntrack in two zones",
			ruleset(at(-300, zone), at(0, drop), reads), ruleset(at(0, drop), reads),
			diff.Undecidable,
		},
		{
			"a zone without effect, because the packets are dropped before conntrack",
			ruleset(at(-300, zone, drop), reads), ruleset(at(-300, drop), reads), diff.Equivalent,
		},
		{
			"before and after conntrack, and another packet is treated differently",
			ruleset(at(-300, drop), reads), ruleset(at(-50, drop), marks), diff.Different,
		},
		{
			"first packets, whose connections are not confirmed",
			ruleset(base(rules.Filter, rules.Output, 0, when(rules.Drop, first)), reads),
			ruleset(base(rules.Filter, rules.Postrouting, 0, when(rules.Drop, first)), reads),
			diff.Equivalent,
		},
		{
			"when they are sent over lo, and when they arrive",
			ruleset(base(rules.Filter, rules.Output, 0, when(rules.Drop, toLo, untranslated)),
				at(0, when(rules.Drop, lo)), reads),
			ruleset(at(0, when(rules.Drop, lo)), reads), diff.Undecidable,
		},
		{
			"when they are sent over lo, which packets of translated connections may leave, and when they arrive",
			ruleset(base(rules.Filter, rules.Output, 0, when(rules.Drop, toLo)),
				at(0, when(rules.Drop, lo)), reads),
			ruleset(at(0, when(rules.Drop, lo)), reads), diff.Different,
		},
	} {
		r := decide(tc.left, tc.right)
		if got := r.Verdict(true); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
