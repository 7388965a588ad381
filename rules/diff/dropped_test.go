package diff_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestDropsBeforeConntrack verifies that the comparison of two ways to drop the same packets is
// undecided only if they change states of connections differently and a rule depends on the states.
func TestDropsBeforeConntrack(t *testing.T) {
	eth1 := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "eth1"}}}
	lo := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	toLo := rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "lo"}}}
	established := rules.MatchState{States: rules.States(rules.Established)}
	reads := base(rules.Filter, rules.Prerouting, 10, when(setMark(1, 1), established))
	input := base(rules.Filter, rules.Input, 0, when(rules.Drop, established))
	jump := when(rules.Jump{Chain: "states"})
	toChain := base(rules.Filter, rules.Input, 0, jump)
	states := chain("states", when(rules.Drop, established))
	marks := base(rules.Filter, rules.Prerouting, 10, when(setMark(1, 1)))
	translates := natIn(when(redirect(15006), tcp))
	at := func(priority int, list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Prerouting, priority, list...)
	}
	nat := base(rules.NAT, rules.Output, -100)
	drop := when(rules.Drop, eth1)
	untranslated := rules.MatchState{Not: true, States: rules.States(rules.SNAT, rules.DNAT)}
	isNew := rules.MatchState{States: rules.States(rules.New)}
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
			"before conntrack, and after a zone on one side",
			ruleset(at(-300, zone, drop), reads), ruleset(at(-300, drop), reads), diff.Equivalent,
		},
		{
			"before and after conntrack, and a rule at input reads the state",
			ruleset(at(-300, drop), input), ruleset(at(-50, drop), input), diff.Equivalent,
		},
		{
			"before and after conntrack, and a rule that only input reaches reads the state",
			ruleset(at(-300, drop), toChain, states), ruleset(at(-50, drop), toChain, states),
			diff.Equivalent,
		},
		{
			"before and after conntrack, and a rule that prerouting reaches reads the state",
			ruleset(at(-300, drop), at(10, jump), states), ruleset(at(-50, drop), at(10, jump), states),
			diff.Undecidable,
		},
		{
			"before and after conntrack, and a rule at postrouting reads the state",
			ruleset(at(-300, drop), base(rules.Filter, rules.Postrouting, 0, when(setMark(1, 1), established))),
			ruleset(at(-50, drop), base(rules.Filter, rules.Postrouting, 0, when(setMark(1, 1), established))),
			diff.Undecidable,
		},
		{
			"before and after conntrack, and another packet is treated differently",
			ruleset(at(-300, drop), reads), ruleset(at(-50, drop), marks), diff.Different,
		},
		{
			"of first packets, whose connections are not confirmed",
			ruleset(base(rules.Filter, rules.Output, 0, when(rules.Drop, isNew)), reads),
			ruleset(base(rules.Filter, rules.Postrouting, 0, when(rules.Drop, isNew)), reads),
			diff.Equivalent,
		},
		{
			"of packets that are sent over lo, and of the same packets when they arrive",
			ruleset(base(rules.Filter, rules.Output, 0, when(rules.Drop, toLo, untranslated)),
				at(0, when(rules.Drop, lo)), reads),
			ruleset(at(0, when(rules.Drop, lo)), reads), diff.Undecidable,
		},
		{
			"of all packets that are sent over lo, and of arriving packets, without NAT",
			ruleset(base(rules.Filter, rules.Output, 0, when(rules.Drop, toLo)),
				at(0, when(rules.Drop, lo)), reads),
			ruleset(at(0, when(rules.Drop, lo)), reads), diff.Undecidable,
		},
		{
			"of all packets that are sent over lo, even if NAT may translate them, and of arriving packets",
			ruleset(nat, base(rules.Filter, rules.Output, 0, when(rules.Drop, toLo)),
				at(0, when(rules.Drop, lo)), reads),
			ruleset(nat, at(0, when(rules.Drop, lo)), reads), diff.Different,
		},
	} {
		r := decide(tc.left, tc.right)
		if got := r.StrictVerdict(); got != tc.want {
			t.Errorf("drops %s: verdict %s, want %s", tc.name, got, tc.want)
		}
	}
}

// If packets are undecided because of an unknown rule and because of the states of connections,
// only the rule is reported.
func TestUnknownRuleIsReportedInsteadOfStates(t *testing.T) {
	eth1 := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "eth1"}}}
	drop := when(rules.Drop, eth1)
	unknown := when(setMark(1, 1), rules.Unknown{
		Text: "sampled", Effect: rules.Reads, Data: rules.NoData,
	})
	side := func(priority int) rules.Ruleset {
		return ruleset(base(rules.Filter, rules.Prerouting, priority, drop),
			base(rules.Filter, rules.Prerouting, 10, unknown))
	}
	r := decide(side(-300), side(-50))
	if r.StrictVerdict() != diff.Undecidable || len(r.Undecided) == 0 {
		t.Fatalf("verdict %s because of %v, want %s with a reason", r.StrictVerdict(), r.Undecided,
			diff.Undecidable)
	}
	for _, u := range r.Undecided {
		if !strings.Contains(u.Text, "sampled") {
			t.Errorf("undecided because of %s, want only the sampled condition", u.Text)
		}
	}
}

// States of connections matter only if a rule for packets of the compared families depends on them.
func TestStatesOfOtherFamilies(t *testing.T) {
	eth1 := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "eth1"}}}
	established := rules.MatchState{States: rules.States(rules.Established)}
	side := func(priority int) rules.Ruleset {
		rs := ruleset(base(rules.Filter, rules.Prerouting, priority, when(rules.Drop, eth1)))
		rs.Tables[0].Family = rules.Inet
		rs.Tables = append(rs.Tables, rules.Table{
			Family: rules.IPv6, Name: "v6", Chains: []rules.Chain{
				base(rules.Filter, rules.Prerouting, 10, when(setMark(1, 1), established)),
			},
		})
		return rs
	}
	left, right := side(-300), side(-50)
	for family, want := range map[rules.Family]diff.Verdict{
		rules.IPv4: diff.Equivalent, rules.IPv6: diff.Undecidable,
	} {
		r := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right},
			diff.Options{Families: []rules.Family{family}})
		if got := r.StrictVerdict(); got != want {
			t.Errorf("%s: verdict %s, want %s", family, got, want)
		}
	}
}

// TestConnectionMarksOfDroppedPackets verifies that the connection mark of a dropped packet matters
// only if its connection remains, or if a reply to the packet has the connection.
func TestConnectionMarksOfDroppedPackets(t *testing.T) {
	out := func(list ...rules.Rule) rules.Chain {
		return base(rules.Filter, rules.Postrouting, 0, list...)
	}
	const in = "in tcp 192.0.2.10:40000 > 10.244.1.5:80 dev eth0"
	const toLo = "out tcp 10.244.1.5:40000 > 10.244.1.5:80 dev lo"
	for _, tc := range []struct {
		packet  string
		at      func(list ...rules.Rule) rules.Chain
		end     rules.Action
		differs bool
	}{
		{in, mangleIn, rules.Drop, false},
		{in + " status confirmed", mangleIn, rules.Drop, true},
		{in + " state established", mangleIn, rules.Drop, true},
		{in, mangleIn, rules.Reject{With: "icmp port-unreachable"}, true},
		{"out tcp 10.244.1.5:40000 > 192.0.2.10:80 dev eth0", out, rules.Drop, false},
		{toLo, mangleOut, rules.Drop, false},
		{toLo, out, rules.Drop, false},
		{toLo, mangleIn, rules.Drop, true}, // postrouting has confirmed the connection
	} {
		mark := when(rules.MixMark{Conntrack: true, Xor: 1})
		left, right := ruleset(tc.at(when(tc.end))), ruleset(tc.at(mark, when(tc.end)))
		p := must(rules.ParsePacket(tc.packet))
		r := diff.Decide(diff.Side{Ruleset: left}, diff.Side{Ruleset: right}, diff.Options{})
		differs := slices.ContainsFunc(r.Classes, func(c diff.Class) bool { return c.Contains(p) })
		same := diff.Explain(&left, p).Outcome.Same(diff.Explain(&right, p).Outcome)
		if differs != tc.differs || same == tc.differs {
			t.Errorf("%s, %s at %s: different %t, explained as different %t, want %t", tc.packet, tc.end,
				left.Tables[0].Chains[0].Base.Hook, differs, !same, tc.differs)
		}
	}
}
