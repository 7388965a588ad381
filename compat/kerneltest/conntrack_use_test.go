package kerneltest_test

import (
	"fmt"
	"net"
	"net/netip"
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
