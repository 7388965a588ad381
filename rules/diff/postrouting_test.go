package diff_test

import (
	"net/netip"
	"testing"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Decide evaluates the chains at postrouting for packets that leave the host.
func TestPostroutingOfPacketsThatLeave(t *testing.T) {
	snat := func(to string) rules.Action { return rules.SNATTo{Addr: netip.MustParseAddr(to)} }
	masquerade := rules.Unknown{Text: "masquerade", Effect: rules.TranslatesSource}
	sourceNAT := func(list ...rules.Rule) rules.Ruleset {
		return ruleset(base(rules.NAT, rules.Postrouting, 100, list...))
	}
	filter := func(list ...rules.Rule) rules.Ruleset {
		return ruleset(base(rules.Filter, rules.Postrouting, 0, list...))
	}
	fromRoot := rules.MatchOwner{IDs: rules.Singles[uint32](0)}
	byEth0 := rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "eth0"}}}
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		want        diff.Verdict
	}{
		{
			"the same source", sourceNAT(when(snat("169.254.7.127"), tcp)),
			sourceNAT(when(snat("169.254.7.127"), tcp)), diff.Equivalent,
		},
		{
			"a source on one side only", sourceNAT(when(snat("169.254.7.127"), tcp)), sourceNAT(),
			diff.Different,
		},
		{
			"two sources", sourceNAT(when(snat("169.254.7.127"))), sourceNAT(when(snat("169.254.7.128"))),
			diff.Different,
		},
		{
			"the same masquerade", sourceNAT(when(masquerade)), sourceNAT(when(masquerade)),
			diff.Equivalent,
		},
		{
			"the address that the kernel selects is unknown", sourceNAT(when(masquerade)),
			sourceNAT(when(snat("169.254.7.127"))), diff.Undecidable,
		},
		{
			"the first translation applies",
			sourceNAT(when(snat("169.254.7.127"), tcp), when(masquerade)),
			sourceNAT(when(snat("169.254.7.127"), tcp), when(snat("169.254.7.128"), tcp), when(masquerade)),
			diff.Equivalent,
		},
		{
			"a translation for one user, and for all",
			sourceNAT(when(snat("169.254.7.127"), fromRoot)),
			sourceNAT(when(snat("169.254.7.127"))), diff.Different,
		},
		{"a drop", filter(when(rules.Drop, byEth0)), filter(), diff.Different},
		{"a mark", filter(when(setMark(5, 5), byEth0)), filter(), diff.Different},
		{
			"a chain after SNAT reads the new source",
			ruleset(base(rules.NAT, rules.Postrouting, 100, when(snat("169.254.7.127"))),
				base(rules.Filter, rules.Postrouting, 110,
					when(rules.Drop, sourceIs("169.254.7.127")))),
			filter(when(rules.Drop)),
			diff.Different, // packets of established connections may have another source
		},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left}, diff.Side{Ruleset: tc.right},
			diff.Options{Families: []rules.Family{rules.IPv4}})
		if v := r.StrictVerdict(); v != tc.want {
			t.Errorf("%s: verdict %s, want %s\n%v", tc.name, v, tc.want, r.Classes)
		}
	}
}

func sourceIs(address string) rules.Match {
	a := netip.MustParseAddr(address)
	return rules.MatchAddr{Side: rules.Source, Ranges: []netipx.IPRange{netipx.IPRangeFrom(a, a)}}
}

func TestExplainFollowsPostrouting(t *testing.T) {
	rs := ruleset(base(rules.NAT, rules.Postrouting, 100,
		when(rules.SNATTo{Addr: netip.MustParseAddr("169.254.7.127")}, tcp)))
	p := must(rules.ParsePacket("out tcp 10.0.0.1:40000 > 10.244.1.5:80 uid 0"))
	trace := diff.Explain(&rs, p)
	const want = "goes to its destination, not captured, source 169.254.7.127"
	if got := trace.Outcome.String(); got != want || len(trace.Passes) != 2 ||
		trace.Passes[1].Packet.Hook != rules.Postrouting ||
		trace.Passes[1].Packet.OutInterface != "eth0" {
		t.Errorf("outcome %s, passes %+v, want %s with a second pass at postrouting through eth0", got,
			trace.Passes, want)
	}
}

// A chain with the priority at which conntrack confirms connections may run before or after the
// confirmation. The right side has the same rule in a chain that runs before it.
func TestChainAtTheConfirmationOfConnections(t *testing.T) {
	const confirmation = 2147483647
	isNew := rules.MatchState{States: rules.States(rules.New)}
	isConfirmed := rules.MatchStatus{Status: rules.StatusConfirmed}
	readsStatus := rules.Unknown{Text: "ct status == confirmed", Effect: rules.Reads}
	for _, tc := range []struct {
		name     string
		rule     rules.Rule
		priority int
		want     diff.Verdict
	}{
		{
			"a rule reads the confirmation", when(rules.Drop, isNew, isConfirmed), confirmation,
			diff.Undecidable,
		},
		{
			"a rule reads the confirmation at a lower priority",
			when(rules.Drop, isNew, isConfirmed), confirmation - 1, diff.Equivalent,
		},
		{
			"an unknown condition may read the confirmation", when(rules.Drop, readsStatus),
			confirmation, diff.Undecidable,
		},
		{
			"an unknown condition may read the confirmation at a lower priority",
			when(rules.Drop, readsStatus), confirmation - 1, diff.Equivalent,
		},
		{
			"a rule does not depend on the confirmation", when(setMark(5, 5), tcp), confirmation,
			diff.Equivalent,
		},
		{
			"a drop, which removes only an unconfirmed connection", when(rules.Drop, tcp, isNew),
			confirmation, diff.Undecidable,
		},
	} {
		side := func(priority int) diff.Side {
			return diff.Side{
				Ruleset: ruleset(base(rules.Filter, rules.Postrouting, priority, tc.rule)),
			}
		}
		r := diff.Decide(side(tc.priority), side(300),
			diff.Options{Families: []rules.Family{rules.IPv4}})
		if v := r.StrictVerdict(); v != tc.want {
			t.Errorf("%s: verdict %s, want %s\n%v", tc.name, v, tc.want, r.Classes)
		}
	}
}

// Whether the source of the first packet of a connection is in a list may depend on SNAT by a rule.
func TestListsAfterSNAT(t *testing.T) {
	isNew := rules.MatchState{States: rules.States(rules.New)}
	isFirst := rules.MatchStatus{Not: true, Status: rules.StatusConfirmed}
	snat := base(rules.NAT, rules.Postrouting, 100,
		when(rules.SNATTo{Addr: netip.MustParseAddr("169.254.7.127")}))
	source := rules.MatchListed{List: "ipset s", Parts: "src", Source: true}
	destination := rules.MatchListed{List: "ipset s", Parts: "dst", Destination: true}
	at := func(priority int, m rules.Match) rules.Ruleset {
		return ruleset(snat, base(rules.Filter, rules.Postrouting, priority, when(rules.Drop, isNew, isFirst, m)))
	}
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		equivalent  bool
	}{
		{"the source, before and after", at(50, source), at(150, source), false},
		{"the source, twice after", at(150, source), at(160, source), true},
		{"the destination, before and after", at(50, destination), at(150, destination), true},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left}, diff.Side{Ruleset: tc.right},
			diff.Options{Families: []rules.Family{rules.IPv4}})
		if v := r.StrictVerdict(); (v == diff.Equivalent) != tc.equivalent {
			t.Errorf("%s: verdict %s, want equivalent %t\n%v", tc.name, v, tc.equivalent, r.Classes)
		}
	}
}

// A packet of a connection that NAT translated earlier may leave by another interface than the one
// that rules at output see, because the kernel routes it again (DNATAtOutputReroutes).
func TestInterfaceOfPacketsTranslatedEarlier(t *testing.T) {
	nat := base(rules.NAT, rules.Output, -100, when(rules.DNATTo{Addr: netip.MustParseAddr("10.9.9.9")}))
	drop := func(on rules.MatchInterface) rules.Rule {
		return when(rules.Drop, on, rules.MatchState{States: rules.States(rules.Established)},
			rules.MatchDirection{}, rules.MatchStatus{Status: rules.StatusDNAT})
	}
	byEth0 := drop(rules.MatchInterface{Out: true, Names: []rules.InterfaceName{{Name: "eth0"}}})
	arriving := mangleIn(drop(rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}))
	atOutput := ruleset(nat, arriving, base(rules.Filter, rules.Output, -150, byEth0))
	atPostrouting := ruleset(nat, arriving, base(rules.Filter, rules.Postrouting, 0, byEth0))
	for _, tc := range []struct {
		name        string
		left, right rules.Ruleset
		equivalent  bool
	}{
		{"at output and at postrouting", atOutput, atPostrouting, false},
		{"twice at postrouting", atPostrouting, atPostrouting, true},
	} {
		r := diff.Decide(diff.Side{Ruleset: tc.left}, diff.Side{Ruleset: tc.right},
			diff.Options{Families: []rules.Family{rules.IPv4}})
		if v := r.StrictVerdict(); (v == diff.Equivalent) != tc.equivalent {
			t.Errorf("%s: verdict %s, want equivalent %t\n%v", tc.name, v, tc.equivalent, r.Classes)
		}
	}
}
