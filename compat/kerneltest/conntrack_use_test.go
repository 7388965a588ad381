package kerneltest_test

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestNATChainsNeedConntrack verifies the fact NATNeedsConntrack: packets traverse a NAT chain only
// if a rule makes the kernel track connections of their family. The policy of the test's NAT chain
// drops packets. The model predicts the same as the kernel, or reports the packet as undecided.
func TestNATChainsNeedConntrack(t *testing.T) {
	const natChain = "chain n {\ntype nat hook output priority -100; policy drop;\n%s\n}\n"
	both := [2]bool{true, true}
	for _, tc := range []struct {
		name, nat, filter string
		dropped           [2]bool // IPv4, IPv6
		// decided reports whether the model decides all packets that the kernel drops.
		decided bool
	}{
		{"no rule", "", "", [2]bool{}, true},
		{"a rule without a translation", "tcp dport 9 counter accept", "", [2]bool{}, true},
		{"notrack", "", "tcp dport 9 notrack", [2]bool{}, true},
		{"a state", "", "ct state new counter", both, true},
		{"a state in a set", "", "ct state . udp dport { new . 7 } counter", both, true},
		{"a connection mark", "", "tcp dport 9 ct mark set 1", both, true},
		{"a zone", "", "tcp dport 9 ct zone set 1", both, true},
		{"an unknown field", "", "ct id 5 counter", both, false},
		{"redirect", "tcp dport 9 redirect", "", both, true},
		{"redirect of IPv4", "meta nfproto ipv4 tcp dport 9 redirect", "", both, true},
		{"dnat to a port", "tcp dport 9 dnat to :8", "", both, true},
		{"dnat to IPv4", "tcp dport 9 dnat ip to 127.0.0.1", "", [2]bool{true, false}, true},
		{"dnat to IPv6", "tcp dport 9 dnat ip6 to ::1", "", [2]bool{false, true}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "table inet a {\n" + fmt.Sprintf(natChain, tc.nat) +
				"chain f {\ntype filter hook output priority -300;\n" + tc.filter + "\n}\n}\n"
			ns := netnstest.New(t)
			istiotest.Run(t, ns, text, "nft", "-f", "-")
			live := readLive(t, ns)
			for i, address := range []string{"127.0.0.1", "::1"} {
				from := listenUDP(t, ns, net.JoinHostPort(address, "4000"))
				to := listenUDP(t, ns, net.JoinHostPort(address, "10"))
				// The error is EPERM if the NAT chain drops the packet.
				_, err := from.WriteTo([]byte("x"), to.LocalAddr())
				if (err != nil) != tc.dropped[i] {
					t.Errorf("packet to %s: the kernel: error %v, want dropped %t", address, err,
						tc.dropped[i])
				}
				ip := netip.MustParseAddr(address)
				outcome := diff.Explain(live, rules.Packet{
					Hook: rules.Output, OutInterface: "lo", Protocol: rules.UDP,
					Source: netip.AddrPortFrom(ip, 4000), Destination: netip.AddrPortFrom(ip, 10),
					Owner: &rules.Owner{},
				}).Outcome
				undecided := outcome.Undecided != ""
				if !undecided && outcome.Dropped != tc.dropped[i] {
					t.Errorf("packet to %s: the model: %s, want dropped %t", address, outcome,
						tc.dropped[i])
				}
				if undecided && tc.dropped[i] && tc.decided {
					t.Errorf("packet to %s: the model: %s, want a decision", address, outcome)
				}
			}
		})
	}
}

// TestTranslationNeedsNATChain verifies the fact TranslationNeedsNATChain with the packets of one
// connection. Its first packet is redirected. Later packets are redirected only while the family
// has a NAT chain, of any backend.
func TestTranslationNeedsNATChain(t *testing.T) {
	const natChain = "table ip n {\nchain n {\ntype nat hook output priority -100;\n%s\n}\n}\n"
	ns := netnstest.New(t)
	istiotest.Run(t, ns, `table ip a {
		chain after { type filter hook output priority 0
		udp dport 10 ct status dnat counter
		udp dport 9 ct status dnat counter
		}
	}`, "nft", "-f", "-")
	from := listenUDP(t, ns, "127.0.0.1:4000")
	to := listenUDP(t, ns, "127.0.0.1:9").LocalAddr()
	_ = listenUDP(t, ns, "127.0.0.1:10")
	for _, step := range []struct {
		name, nft, iptables string
		hits                [2]uint64 // numbers of redirected and other packets, with earlier steps
	}{
		{
			"the first packet", fmt.Sprintf(natChain, "udp dport 9 redirect to :10"), "",
			[2]uint64{1, 0},
		},
		{"no NAT chain", "delete table ip n\n", "", [2]uint64{1, 1}},
		{
			"a NAT chain of IPv6", strings.Replace(fmt.Sprintf(natChain, ""), "table ip", "table ip6", 1),
			"",
			[2]uint64{1, 2},
		},
		{"a NAT chain without rules", fmt.Sprintf(natChain, ""), "", [2]uint64{2, 2}},
		{"no NAT chain again", "delete table ip n\n", "", [2]uint64{2, 3}},
		{"a NAT table of iptables-legacy without rules", "", "iptables-legacy", [2]uint64{3, 3}},
	} {
		before := readLive(t, ns).Tables
		if step.nft != "" {
			istiotest.Run(t, ns, step.nft, "nft", "-f", "-")
		}
		if step.iptables != "" {
			istiotest.Run(t, ns, "", step.iptables, "-w", "-t", "nat", "-L")
		}
		if _, err := from.WriteTo([]byte("x"), to); err != nil {
			t.Fatal(err)
		}
		live := readLive(t, ns)
		hits := func(tables []rules.Table) (hits [2]uint64) {
			a := slices.IndexFunc(tables, func(t rules.Table) bool { return t.Name == "a" })
			for i := range hits {
				hits[i] = tables[a].Chains[0].Rules[i].Hits.Packets
			}
			return hits
		}
		if got := hits(live.Tables); got != step.hits {
			t.Errorf("%s: the kernel: %d redirected packets and %d others, want %d", step.name, got[0],
				got[1], step.hits)
		}
		if step.hits == [2]uint64{1, 0} {
			continue // the packet for the model is a later one
		}
		isRedirected := step.hits[0] > hits(before)[0]
		for i := range live.Tables {
			if c := &live.Tables[i].Chains[0]; live.Tables[i].Name == "a" {
				c.Rules[1].Actions = append(c.Rules[1].Actions, rules.Drop)
			}
		}
		const later = "out udp 127.0.0.1:4000 > 127.0.0.1:9 dev lo uid 0 status confirmed,dnat"
		got := diff.Explain(live, parsed(t, later)).Outcome
		if got.Dropped == isRedirected && got.Undecided == "" || got.Undecided != "" && !isRedirected {
			t.Errorf("%s: the model: %s, want dropped %t", step.name, got, !isRedirected)
		}
	}
}
