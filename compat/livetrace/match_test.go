package livetrace_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ruleset returns a ruleset with one chain, which has two rules that match every packet.
func ruleset() rules.Ruleset {
	return rules.Ruleset{Tables: []rules.Table{{Name: "x", Chains: []rules.Chain{{
		Name: "out", Base: &rules.Base{Hook: rules.Output},
		Rules: []rules.Rule{
			{Handle: 5, Actions: []rules.Action{rules.Count{}}},
			{Handle: 6, Actions: []rules.Action{rules.Drop}, Comment: "closed"},
		},
	}}}}}
}

func TestMatchComparesRuleByRule(t *testing.T) {
	h := &trace.Header{
		Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
		Destination: netip.MustParseAddrPort("10.0.0.2:80"), Flags: rules.SYN,
	}
	first := trace.Event{
		Kind: trace.Rule, Table: "x", Chain: "out", Handle: 5, Verdict: trace.Continue, Out: 2,
		Header: h,
	}
	second := trace.Event{
		Kind: trace.Rule, Table: "x", Chain: "out", Handle: 6, Verdict: trace.Drop,
	}
	unknown := trace.Event{
		Kind: trace.Rule, Table: "x", Chain: "out", Handle: 7, Verdict: trace.Drop,
	}
	for name, tc := range map[string]struct {
		events      []trace.Event
		difference  string // a part of the differences, empty for none
		wantMessage string
	}{
		"the same path": {
			[]trace.Event{first, second},
			"",
			"dropped by nft chain inet x out rule 2: drop  # closed",
		},
		"a rule that did not match": {
			[]trace.Event{first},
			"the model predicted inet x out handle 6, the kernel ran no further rule",
			"not captured: no rule captures it",
		},
		"a deleted rule": {
			[]trace.Event{first, unknown},
			"the model predicted inet x out handle 6, the kernel ran inet x out handle 7",
			"dropped by nft chain inet x out rule with handle 7, which is not in the ruleset now",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rs := ruleset()
			p := trace.Packet{Events: tc.events}
			packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
			packet.Owner = &rules.Owner{}
			o, ok := livetrace.Match(&rs, p, packet, livetrace.Options{OwnerKnown: true})
			if !ok || o.Message != tc.wantMessage {
				t.Errorf("matched %v, message %q, want %q", ok, o.Message, tc.wantMessage)
			}
			got := strings.Join(o.Differences, "; ")
			if tc.difference == "" && got != "" || !strings.Contains(got, tc.difference) {
				t.Errorf("differences %q, want %q", got, tc.difference)
			}
			if o.NotCompared != "" {
				t.Errorf("not compared: %s, want a comparison", o.NotCompared)
			}
		})
	}
	if _, ok := livetrace.Match(&rules.Ruleset{}, trace.Packet{Events: []trace.Event{second}},
		rules.Packet{}, livetrace.Options{}); ok {
		t.Error("Match returns true for a packet without its first event, want false")
	}
}

// A packet with the reported conntrack state new is the first packet of its connection. Without a
// reported state, it may be a retransmission, which does not traverse NAT chains.
func TestMatchTrustsTheReportedState(t *testing.T) {
	rs := rules.Ruleset{Tables: []rules.Table{{Name: "x", Chains: []rules.Chain{
		{
			Name: "mangle", Base: &rules.Base{Hook: rules.Output, Priority: -150},
			Rules: []rules.Rule{{Handle: 5, Actions: []rules.Action{rules.Count{}}}},
		},
		{
			Name: "nat", Base: &rules.Base{
				Hook: rules.Output, Type: rules.NAT, Priority: -100,
			},
			Rules: []rules.Rule{{Handle: 6, Actions: []rules.Action{rules.RedirectTo{Port: 15001}}}},
		},
	}}}}
	for _, isReported := range []bool{true, false} {
		p := trace.Packet{Events: []trace.Event{{
			Kind: trace.Rule, Table: "x", Chain: "mangle", Handle: 5, Verdict: trace.Continue, Out: 2,
			Header: &trace.Header{
				Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
				Destination: netip.MustParseAddrPort("10.0.0.2:80"), Flags: rules.SYN,
			},
			State: rules.New, HasState: isReported,
		}}}
		packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
		packet.Owner = &rules.Owner{}
		o, ok := livetrace.Match(&rs, p, packet, livetrace.Options{OwnerKnown: true})
		if !ok || o.Repeated == isReported || (len(o.Differences) == 1) != isReported {
			t.Errorf("state reported %v: repeated %v, differences %q; want one difference if the state"+
				" is reported, and otherwise a repeated packet", isReported, o.Repeated, o.Differences)
		}
	}
}

// A prediction that exceeds its budget is not compared with the path in the kernel.
func TestPredictionIsLimited(t *testing.T) {
	rs := ruleset()
	p := trace.Packet{Events: []trace.Event{{
		Kind: trace.Rule, Table: "x", Chain: "out", Handle: 5, Verdict: trace.Continue, Out: 2,
		Header: &trace.Header{
			Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
			Destination: netip.MustParseAddrPort("10.0.0.2:80"), Flags: rules.SYN,
		},
	}}}
	packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
	for budget, want := range map[diff.Budget]string{
		{}:          "",
		{Memory: 1}: "the prediction takes too much work: more than half of 0 MB of memory",
	} {
		o, ok := livetrace.Match(&rs, p, packet, livetrace.Options{OwnerKnown: true, Budget: budget})
		if !ok || o.NotCompared != want {
			t.Errorf("budget %+v: matched %v, not compared %q, want %q", budget, ok, o.NotCompared, want)
		}
	}
}

// If the group of the sender is a guess, it may be the reason for a deviation from the prediction.
func TestDeviationWithAnUnknownGroupIsNoDifference(t *testing.T) {
	rs := rules.Ruleset{Tables: []rules.Table{{Name: "x", Chains: []rules.Chain{{
		Name: "out", Base: &rules.Base{Hook: rules.Output},
		Rules: []rules.Rule{{
			Handle: 5, Actions: []rules.Action{rules.Drop},
			Matches: []rules.Match{rules.MatchOwner{Group: true, IDs: rules.Singles[uint32](1337)}},
		}},
	}}}}}
	p := trace.Packet{Events: []trace.Event{{
		Kind: trace.Policy, Table: "x", Chain: "out", Verdict: trace.Accept, Out: 2,
		Header: &trace.Header{
			Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
			Destination: netip.MustParseAddrPort("10.0.0.2:80"), Flags: rules.SYN,
		},
	}}}
	packet := livetrace.PacketOf(p, map[uint32]string{2: "eth0"})
	packet.Owner = &rules.Owner{UID: 1337, GID: 1337}
	for groupUnknown, want := range map[bool]string{
		false: "", true: "the group of the socket is not known",
	} {
		o, ok := livetrace.Match(&rs, p, packet, livetrace.Options{
			OwnerKnown: true, GroupUnknown: groupUnknown,
		})
		if !ok || o.NotCompared != want || (len(o.Differences) == 0) != groupUnknown {
			t.Errorf("group unknown %v: matched %v, differences %q, not compared %q, want %q",
				groupUnknown, ok, o.Differences, o.NotCompared, want)
		}
	}
}
