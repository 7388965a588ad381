package livetrace_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-mesh/sluice/compat/livetrace"
	"github.com/sluice-mesh/sluice/nft/trace"
	"github.com/sluice-mesh/sluice/rules"
)

// The kernel reports the rule that contains a map, but not the matching element. The model has a
// rule for each element.
func TestMatchFindsTheElementOfAMap(t *testing.T) {
	branch := func(h rules.Handle, m rules.Match, a rules.Action) rules.Rule {
		tcp := rules.MatchProtocol{Protocols: []rules.Protocol{rules.TCP}}
		return rules.Rule{Handle: h, Matches: []rules.Match{tcp, m}, Actions: []rules.Action{a}}
	}
	port := func(port uint16) rules.Match {
		return rules.MatchPort{Side: rules.Destination, Ports: rules.Singles(port)}
	}
	list := []rules.Rule{
		{Handle: 5, Actions: []rules.Action{rules.Count{}}},
		branch(6, port(80), rules.Accept),
		branch(6, port(81), rules.Drop),
		branch(6, port(82), rules.Jump{Chain: "x"}),
		branch(7, port(80), rules.RedirectTo{Port: 1}),
		branch(7, port(81), rules.RedirectTo{Port: 2}),
		branch(8, rules.MatchMark{Value: 1, Mask: 1}, rules.RedirectTo{Port: 3}),
		branch(8, rules.MatchMark{Value: 2, Mask: 2}, rules.RedirectTo{Port: 4}),
		branch(9, port(80), rules.Drop),
		{
			Handle: 10, Matches: []rules.Match{rules.MatchFamily{Family: rules.IPv6}},
			Actions: []rules.Action{rules.DNATTo{Addr: netip.MustParseAddr("fd00::1")}},
		},
	}
	for name, tc := range map[string]struct {
		handle    rules.Handle
		verdict   trace.Verdict
		target    string
		port      uint16
		message   string
		path      string
		localPort uint16
	}{
		"the verdict identifies the element": {
			handle: 6, verdict: trace.Drop, port: 81,
			message: "dropped by nft chain inet x out rule 2: tcp dport 81 drop",
			path:    "output: nft chain inet x out rule 2: tcp dport 81 drop",
		},
		"the target chain identifies the element": {
			handle: 6, verdict: trace.Jump, target: "x", port: 82,
			message: "not captured: no rule captures it",
			path:    "output: nft chain inet x out rule 2: tcp dport 82 jump x",
		},
		"no element has the reported verdict": {
			handle: 6, verdict: trace.Continue, port: 83,
			message: "not captured: no rule captures it",
			path:    "output: nft chain inet x out rule 2: unknown element of a map",
		},
		"the only element has another verdict": {
			handle: 9, verdict: trace.Continue, port: 83,
			message: "not captured: no rule captures it",
			path:    "output: nft chain inet x out rule 5: unknown element of a map",
		},
		"NAT of the other family": {
			handle: 10, verdict: trace.Continue, port: 80,
			message: "not captured: no rule captures it",
			path: "output: nft chain inet x out rule 6: meta nfproto ipv6 dnat ip6 to fd00::1" +
				" (without effect)",
		},
		"the header identifies the element": {
			handle: 7, verdict: trace.Accept, port: 81,
			message: "captured: nft chain inet x out rule 3: tcp dport 81 redirect to :2 (2)",
			path:    "output: nft chain inet x out rule 3: tcp dport 81 redirect to :2", localPort: 2,
		},
		"neither the verdict nor the header identifies the element": {
			handle: 8, verdict: trace.Accept, port: 81,
			message: "captured: nft chain inet x out rule 4: unknown element of a map",
			path:    "output: nft chain inet x out rule 4: unknown element of a map",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rs := rules.Ruleset{Tables: []rules.Table{{Name: "x", Chains: []rules.Chain{
				{Name: "out", Base: &rules.Base{Hook: rules.Output, Type: rules.NAT}, Rules: list},
				{Name: "x"},
			}}}}
			p := trace.Packet{Events: []trace.Event{{
				Kind: trace.Rule, Table: "x", Chain: "out", Handle: tc.handle, Verdict: tc.verdict,
				Target: tc.target, Out: 2,
				Header: &trace.Header{
					Protocol: rules.TCP, Source: netip.MustParseAddrPort("10.0.0.1:40000"),
					Destination: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), tc.port),
					Flags:       rules.SYN,
				},
			}}}
			o, ok := livetrace.Match(&rs, p, livetrace.PacketOf(p, map[uint32]string{2: "eth0"}), livetrace.Options{})
			if !ok || o.Message != tc.message || o.LocalPort != tc.localPort {
				t.Errorf("matched %v, message %q, local port %d\nwant message %q, local port %d", ok,
					o.Message, o.LocalPort, tc.message, tc.localPort)
			}
			if path := o.Path(); len(path) != 1 || path[0] != tc.path {
				t.Errorf("path %q, want only %q", path, tc.path)
			}
		})
	}
}
