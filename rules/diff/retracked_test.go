package diff_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestInvalidPacketsInAnotherZone verifies that a decision does not assume that a packet which is
// invalid at output is also invalid when it arrives on lo in another zone. Rules at output drop
// packets in other states, so that the rules at prerouting apply only to these packets on lo.
func TestInvalidPacketsInAnotherZone(t *testing.T) {
	onLoopback := rules.MatchInterface{Names: []rules.InterfaceName{{Name: "lo"}}}
	zoneAt := func(h rules.Hook, zone uint16, matches ...rules.Match) rules.Chain {
		return base(rules.Filter, h, -300, when(rules.SetZone{Zone: zone}, matches...))
	}
	helperIn := base(rules.Filter, rules.Prerouting, -300,
		when(rules.SetZone{Zone: 1, Helper: "ftp"}, onLoopback))
	onlyInvalid := base(rules.Filter, rules.Output, 0, when(rules.Drop, rules.MatchState{
		States: rules.States(rules.New, rules.Established, rules.Related, rules.Untracked),
	}))
	inbound := func(m ...rules.Match) rules.Chain {
		return mangleIn(when(rules.Drop, append(m, onLoopback)...))
	}
	redirectIn := natIn(when(redirect(8080), onLoopback, tcp, toPort(80)))
	dropNew := inbound(rules.MatchState{States: rules.States(rules.New)})
	zoneOut, zoneIn := zoneAt(rules.Output, 1), zoneAt(rules.Prerouting, 1, onLoopback)
	saveMark := base(rules.Filter, rules.Input, 0, when(rules.SaveMark{}))
	dropProxy := base(rules.Filter, rules.Output, 1, when(rules.Drop, toPort(8080)))
	type chains = []rules.Chain
	for _, row := range []struct {
		name        string
		left, right chains
		want        diff.Verdict
	}{
		{
			"NAT, and a zone at output",
			chains{zoneOut, redirectIn},
			chains{zoneOut, natIn()},
			diff.Undecidable,
		},
		{
			"NAT, and a zone at prerouting",
			chains{zoneIn, redirectIn},
			chains{zoneIn, natIn()},
			diff.Undecidable,
		},
		{
			"NAT, and two zones",
			chains{zoneOut, zoneAt(rules.Prerouting, 2), redirectIn},
			chains{zoneOut, zoneAt(rules.Prerouting, 2), natIn()},
			diff.Undecidable,
		},
		{"a state", chains{zoneOut, dropNew}, chains{zoneOut}, diff.Undecidable},
		{
			"a state of UDP packets",
			chains{zoneOut, inbound(protocol(rules.UDP), rules.MatchState{
				States: rules.States(rules.New),
			})},
			chains{zoneOut},
			diff.Equivalent,
		},
		{
			"an invalid state",
			chains{zoneOut, inbound()},
			chains{zoneOut, inbound(rules.MatchState{States: rules.States(rules.Invalid)})},
			diff.Undecidable,
		},
		{
			"a status",
			chains{zoneOut, inbound(rules.MatchStatus{Status: rules.StatusAssured})},
			chains{zoneOut},
			diff.Undecidable,
		},
		{
			"a direction",
			chains{zoneOut, inbound(rules.MatchDirection{Reply: true})},
			chains{zoneOut},
			diff.Undecidable,
		},
		{
			"the mark of a connection",
			chains{
				zoneOut, saveMark, inbound(rules.MatchMark{Conntrack: true, Value: 1, Mask: 1}),
			},
			chains{zoneOut, saveMark},
			diff.Undecidable,
		},
		{
			"a state before conntrack",
			chains{
				zoneOut, base(rules.Filter, rules.Prerouting, -300, when(rules.Drop, onLoopback,
					rules.MatchState{States: rules.States(rules.New)})),
			},
			chains{zoneOut},
			diff.Equivalent,
		},
		{"the same rules", chains{zoneOut, redirectIn}, chains{zoneOut, redirectIn}, diff.Equivalent},
		{
			"the same NAT rule with different states of dropped packets",
			chains{zoneOut, redirectIn, dropNew},
			chains{zoneOut, dropNew, redirectIn},
			diff.Equivalent,
		},
		{"NAT without a zone", chains{redirectIn}, chains{natIn()}, diff.Equivalent},
		{
			"NAT in the same zone",
			chains{zoneOut, zoneIn, redirectIn},
			chains{zoneOut, zoneIn, natIn()},
			diff.Equivalent,
		},
		{
			"NAT, and a zone of other packets",
			chains{zoneAt(rules.Output, 1, protocol(rules.UDP)), redirectIn},
			chains{zoneAt(rules.Output, 1, protocol(rules.UDP)), natIn()},
			diff.Equivalent,
		},
		{
			"the address after a redirection",
			chains{
				zoneOut, redirectIn, dropProxy, base(rules.Filter, rules.Prerouting, -50,
					when(rules.Drop, onLoopback, to("127.0.0.1/32"), toPort(8080))),
			},
			chains{zoneOut, redirectIn, dropProxy},
			diff.Undecidable,
		},
		{"a helper", chains{helperIn}, chains{zoneIn}, diff.Undecidable},
	} {
		t.Run(row.name, func(t *testing.T) {
			left, right := ruleset(append(row.left, onlyInvalid)...),
				ruleset(append(row.right, onlyInvalid)...)
			if r := decide(left, right); r.StrictVerdict() != row.want {
				t.Errorf("verdict %s, want %s: classes %q, undecided %v", r.StrictVerdict(),
					row.want, classes(r), r.Undecided)
			}
		})
	}
}

// TestExplainInvalidPacketInAnotherZone verifies that an explanation of a packet that is invalid at
// output, and arrives on lo in another zone, is undecided only if a rule depends on its connection.
func TestExplainInvalidPacketInAnotherZone(t *testing.T) {
	zone := base(rules.Filter, rules.Output, -300, when(rules.SetZone{Zone: 1}))
	redirectIn := natIn(when(redirect(8080), tcp, toPort(80)))
	text := "out tcp 10.244.1.5:1 > 10.244.1.5:%s state invalid"
	for port, isUnknown := range map[string]bool{"80": true, "81": false} {
		p := must(rules.ParsePacket(strings.ReplaceAll(text, "%s", port)))
		rs := ruleset(zone, redirectIn)
		if o := diff.Explain(&rs, p).Outcome; (o.Undecided != "") != isUnknown {
			t.Errorf("%s: outcome %s, want undecided: %t", p, o, isUnknown)
		}
	}
}
