package kerneltest_test

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestStatesAfterDroppedPackets verifies the fact ConntrackSeesDropped. A dropped packet changes
// the state of its connection only if a chain after conntrack drops it. A dropped first packet
// begins a connection only if a chain after postrouting drops it. If two rulesets drop the same
// packets in different chains, and a rule reads the state, no decision may say that the rulesets
// are equivalent.
func TestStatesAfterDroppedPackets(t *testing.T) {
	// The condition on the status excludes packets of translated connections, which may leave the
	// host although they were routed to lo first.
	const sent = "output priority 0; oifname lo udp dport 9 ct status & (snat | dnat) == 0 drop"
	const arriving = "prerouting priority 0; iifname lo udp dport 9 drop"
	for _, tc := range []struct {
		name  string
		reads string // a condition of the rule that reads the state
		// senders contains the source port of each packet, in the order of sending.
		senders []int
		// drops contains the chains that drop packets, and hits the number of packets of an
		// established connection that the rule matches, for each side.
		drops [2][]string
		hits  [2]uint64
	}{
		{
			"a reply is dropped", "udp dport 9",
			[]int{4000, 9, 4000},
			[2][]string{
				{"output priority -300; udp sport 9 drop"},
				{"output priority -100; udp sport 9 drop"},
			},
			[2]uint64{0, 1},
		},
		{
			"a first packet is dropped", "udp sport 9",
			[]int{4000, 9},
			[2][]string{{sent, arriving}, {arriving}},
			[2]uint64{0, 1},
		},
	} {
		var sides [2]diff.Side
		for i, drops := range tc.drops {
			text := "table ip a {\nchain reads {\ntype filter hook output priority 0;\n" +
				tc.reads + " ct state established counter meta mark set 7\n}\n"
			for j, chain := range drops {
				text += fmt.Sprintf("chain drops%d {\ntype filter hook %s\n}\n", j, chain)
			}
			ns := netnstest.New(t)
			istiotest.Run(t, ns, text+"}\n", "nft", "-f", "-")
			sockets := map[int]net.PacketConn{
				9: listenUDP(t, ns, "127.0.0.1:9"), 4000: listenUDP(t, ns, "127.0.0.1:4000"),
			}
			for _, from := range tc.senders {
				to := sockets[9+4000-from].LocalAddr()
				_, _ = sockets[from].WriteTo([]byte("x"), to) // EPERM if a chain drops the packet
			}
			live := readLive(t, ns)
			chains := live.Tables[0].Chains
			reads := slices.IndexFunc(chains, func(c rules.Chain) bool { return c.Name == "reads" })
			if got := chains[reads].Rules[0].Hits.Packets; got != tc.hits[i] {
				t.Errorf("%s at %s: the kernel: %d packets of an established connection, want %d",
					tc.name, drops, got, tc.hits[i])
			}
			sides[i] = diff.Side{Ruleset: *live}
		}
		r := diff.Decide(sides[0], sides[1], diff.Options{})
		if got := r.StrictVerdict(); got != diff.Undecidable {
			t.Errorf("%s: verdict %s, want %s", tc.name, got, diff.Undecidable)
		}
	}
}
