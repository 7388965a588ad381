package diff_test

import (
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestResetsAreComparedIfARuleSendsThem verifies that a rule that matches only the TCP resets of
// reject rules makes a difference only if a ruleset may send such resets.
func TestResetsAreComparedIfARuleSendsThem(t *testing.T) {
	matchesResets := base(rules.Filter, rules.Output, -300,
		when(rules.Drop, tcp, rules.MatchState{States: rules.States(rules.Related)}))
	for _, tc := range []struct {
		name    string
		action  rules.Action
		verdict diff.Verdict
	}{
		{"no rule sends resets", rules.Reject{With: "icmpx port-unreachable"}, diff.Equivalent},
		{"a rule sends resets", rules.Reject{With: "tcp reset"}, diff.Different},
		{"a rule may do anything", rules.Unknown{Text: "other"}, diff.Different},
	} {
		t.Run(tc.name, func(t *testing.T) {
			input := base(rules.Filter, rules.Input, 0, when(tc.action, tcp))
			got := decide(ruleset(matchesResets, input), ruleset(input))
			if verdict := got.StrictVerdict(); verdict != tc.verdict {
				t.Errorf("verdict %s, want %s", verdict, tc.verdict)
			}
		})
	}
}

// TestTranslatedPacketsAreComparedIfARuleMatchesThem verifies that packets of connections that were
// translated earlier are compared if a rule matches on the translation, alone or together with
// other fields.
func TestTranslatedPacketsAreComparedIfARuleMatchesThem(t *testing.T) {
	translated := rules.MatchStatus{Status: rules.StatusDNAT}
	for name, m := range map[string]rules.Match{
		"status":          translated,
		"state":           rules.MatchState{States: rules.States(rules.DNAT)},
		"tuple of status": rules.MatchTuple{Alternatives: [][]rules.Match{{translated, tcp}}},
	} {
		got := decide(ruleset(base(rules.Filter, rules.Output, -150, when(rules.Drop, m))), ruleset())
		if verdict := got.StrictVerdict(); verdict != diff.Different {
			t.Errorf("%s: verdict %s, want %s", name, verdict, diff.Different)
		}
	}
}

// A filter chain at output answers packets of sockets that are bound to lo also if the source is
// not a local address (RejectFromLoopbackNeedsLocalSource).
func TestRejectOfPacketsOfBoundSockets(t *testing.T) {
	reject, loopback := rules.Reject{With: "icmp port-unreachable"}, to("127.0.0.0/8")
	local := rules.MatchAddrType{Side: rules.Source, Types: rules.AddrTypes(rules.Local)}
	filter := func(list ...rules.Rule) rules.Ruleset {
		return ruleset(base(rules.Filter, rules.Output, 0, list...))
	}
	r := diff.Decide(diff.Side{Ruleset: filter(when(reject, loopback, tcp))},
		diff.Side{Ruleset: filter(
			when(reject, loopback, tcp, local), when(rules.Drop, loopback, tcp))},
		diff.Options{Families: []rules.Family{rules.IPv4}})
	if got := r.StrictVerdict(); got != diff.Different {
		t.Fatalf("verdict %s, want %s", got, diff.Different)
	}
	for _, c := range r.Classes {
		if !c.Witness.Bound {
			t.Errorf("witness %s, want a packet of a bound socket", c.Witness)
		}
	}
}

// If Decide repeats the comparison because states differ, UntrackedUndecided is the result of the
// last comparison only.
func TestUntrackedUndecidedOfTheLastComparison(t *testing.T) {
	zone := base(rules.Filter, rules.Prerouting, -300, when(rules.SetZone{Zone: 5}))
	drops := mangleOut(when(rules.Drop, rules.MatchMark{Conntrack: true, Value: 5, Mask: everyBit}))
	saves := base(rules.Filter, rules.Input, 0, when(rules.SaveMark{}))
	if r := decide(ruleset(zone), ruleset(zone)); !r.UntrackedUndecided {
		t.Fatalf("verdict %s, want undecided packets that enter untracked", r.StrictVerdict())
	}
	r := decide(ruleset(zone, drops, saves), ruleset(zone, drops))
	if len(r.Undecided) == 0 || r.UntrackedUndecided {
		t.Errorf("%d reasons, undecided packets that enter untracked %t, want reasons only",
			len(r.Undecided), r.UntrackedUndecided)
	}
}

// TestPacketsThatSelectTheirInterface verifies that a decision considers packets whose sender has
// selected the interface for this packet: rerouting does not keep it.
func TestPacketsThatSelectTheirInterface(t *testing.T) {
	onLoopback := rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "lo"}}}
	toLocal := rules.MatchAddrType{Side: rules.Destination, Types: rules.AddrTypes(rules.Local)}
	notLocal := toLocal
	notLocal.Not = true
	byEth1 := base(rules.Filter, rules.Postrouting, 0,
		when(rules.Drop, rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "eth1"}}}))
	drop := func(m ...rules.Match) rules.Rule { return when(rules.Drop, m...) }
	marks := func(chainType rules.ChainType, list ...rules.Chain) rules.Ruleset {
		return ruleset(append(list, base(chainType, rules.Output, -150,
			when(setMark(1, everyBit))))...)
	}
	for _, row := range []struct {
		name   string
		chains []rules.Chain // before both chains that set the mark
		want   diff.Verdict
	}{
		{"all packets", nil, diff.Different},
		{
			"only packets to other hosts on lo", []rules.Chain{base(rules.Filter, rules.Output, -160,
				when(rules.Accept, onLoopback, notLocal), drop())}, diff.Different,
		},
		{
			"only packets to this host on other interfaces", []rules.Chain{base(rules.Filter,
				rules.Output, -160, drop(onLoopback), drop(notLocal))}, diff.Different,
		},
		{
			"only packets to this host on lo", []rules.Chain{base(rules.Filter, rules.Output, -160,
				when(rules.Accept, onLoopback, toLocal), drop())}, diff.Equivalent,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			left, right := marks(rules.Route, row.chains...), marks(rules.Filter, row.chains...)
			r := decide(left, right)
			if r.StrictVerdict() != row.want {
				t.Fatalf("verdict %s, want %s", r.StrictVerdict(), row.want)
			}
			for _, c := range r.Classes {
				if !c.Witness.SelectsInterface {
					t.Errorf("witness %s, want a packet whose sender selects the interface", c.Witness)
				}
			}
		})
	}
	// After rerouting, a packet may leave by another interface than its sender selected.
	if r := decide(marks(rules.Route, byEth1), marks(rules.Filter, byEth1)); r.StrictVerdict() ==
		diff.Equivalent {
		t.Errorf("the interface at postrouting: verdict %s, want another", diff.Equivalent)
	}
}
