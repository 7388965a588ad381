package foreign_test

import (
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// TestRedirectedPacketsThatRoutesSendToAnotherHost changes the routes to 127.0.0.1, to which
// captured packets are redirected. No foreign rule is necessary, and the agent gets no event when
// routes of the table local change.
func TestRedirectedPacketsThatRoutesSendToAnotherHost(t *testing.T) {
	for _, row := range []struct {
		name     string
		commands []string
		contains string // a part of the message; empty if packets do not leave the pod
		missing  bool   // LoopbackMissing
	}{
		{
			name: "the local route is deleted",
			commands: []string{
				"ip route del local 127.0.0.0/8 table local", "ip route del local 127.0.0.1 table local",
			},
			contains: "ip -4 route unicast 127.0.0.1", missing: true,
		},
		{
			name: "a policy rule precedes the table local",
			commands: []string{
				"ip rule add lookup local priority 100", "ip rule del priority 0",
				"ip rule add to 127.0.0.1 lookup 98 priority 20",
				"ip route add default via 10.244.1.1 dev eth0 table 98",
			},
			contains: "ip -4 rule priority 20 to 127.0.0.1/32 lookup 98",
		},
		{
			name:     "the rule of the table local has another priority",
			commands: []string{"ip rule add lookup local priority 100", "ip rule del priority 0"},
		},
		{
			name: "a policy rule follows the table local",
			commands: []string{
				"ip rule add lookup 98 priority 20", "ip route add default via 10.244.1.1 dev eth0 table 98",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			network, desired := podWithDNS(t, "")
			istiotest.Run(t, network.Neighbor, `table ip watch { chain in {
				type filter hook prerouting priority -400; ip daddr 127.0.0.1 counter; }; }`, "nft", "-f", "-")
			before := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
			if before.Verdict() != foreign.None || !before.IsValid(network.Pod) {
				t.Fatalf("verdict %s before the change: %s", before.Verdict(), strings.Join(before.Messages(), "\n"))
			}
			for _, command := range row.commands {
				words := strings.Fields(command)
				istiotest.Run(t, network.Pod, "", words[0], words[1:]...)
			}
			c := query
			c.Timeout = noAnswerTimeout
			if _, err := network.Dial(c); err != nil {
				t.Fatal(err)
			}
			counted := istiotest.Run(t, network.Neighbor, "", "nft", "list", "table", "ip", "watch")
			if leaves := !strings.Contains(counted, "counter packets 0"); leaves != (row.contains != "") {
				t.Errorf("redirected packets leave the pod: %t, want %t", leaves, !leaves)
			}
			if valid := before.IsValid(network.Pod); valid != (row.contains == "") {
				t.Errorf("after the change, the snapshot is valid: %t, want %t", valid, !valid)
			}
			want := foreign.None
			if row.contains != "" {
				want = foreign.Unknown
			}
			found := checkEffect(t, network, desired, want, row.contains)
			if found.LoopbackMissing != row.missing {
				t.Errorf("LoopbackMissing is %t, want %t", found.LoopbackMissing, row.missing)
			}
		})
	}
}

// TestRouteToTheLoopbackAddressOfIPv6 deletes the local route to ::1, which matters only if IPv6 is
// captured.
func TestRouteToTheLoopbackAddressOfIPv6(t *testing.T) {
	for ipv6, want := range map[bool]foreign.Verdict{true: foreign.Unknown, false: foreign.None} {
		network, err := testbed.New(testbed.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = network.Close() })
		r := rules.DefaultRedirect()
		r.IPv6, r.OutboundCIDRs.All = ipv6, true
		desired := rules.MustCompile(r)
		b, err := compat.Choose(compat.BackendNFT)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Apply(network.Pod, desired, compat.Snapshot{}); err != nil {
			t.Fatal(err)
		}
		istiotest.Run(t, network.Pod, "", "ip", "-6", "route", "del", "local", "::1", "table", "local")
		found := foreign.Inspect(network.Pod, desired, diff.DefaultBudget)
		if found.Verdict() != want || found.LoopbackMissing != ipv6 {
			t.Errorf("IPv6 captured: %t: verdict %s: %s, want %s", ipv6, found.Verdict(),
				strings.Join(found.Messages(), "\n"), want)
		}
	}
}
