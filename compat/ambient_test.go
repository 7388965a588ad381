package compat_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

func ambientRuleset(t testing.TB) rules.Ruleset {
	t.Helper()
	a := rules.DefaultAmbient()
	a.RerouteInterfaces = []rules.InterfaceName{{Name: "virt0"}}
	rs, err := rules.CompileAmbient(a)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func TestBackendsReadBackAmbientRules(t *testing.T) {
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			ns := netnstest.New(t)
			b, rs := chosen(t, backendName), ambientRuleset(t)
			applyAndCheck(t, b, ns, rs, nft.Created)
			applyAndCheck(t, b, ns, rs, nft.Unchanged)
			live := readLive(t, ns, compat.OriginAll)
			r := diff.Decide(diff.Side{Ruleset: rs, RoutingKnown: true},
				diff.Side{Ruleset: live.Ruleset, RoutingKnown: true}, diff.Options{})
			if v := r.StrictVerdict(); v != diff.Equivalent {
				t.Errorf("the rules of the kernel are %s, want %s; classes %v, undecided %v, routing %v",
					v, diff.Equivalent, r.Classes, r.Undecided, r.Routing)
			}
			if removed, err := b.Remove(ns); err != nil || !removed {
				t.Fatalf("Remove: %t, error %v; want true", removed, err)
			}
			wantNoRules(t, ns)
		})
	}
}

// The calls of ztunnel have its mark. Those to the application keep the client's address, which
// needs a transparent socket.
func TestTrafficOfAnAmbientPodReachesTheExpectedListener(t *testing.T) {
	const probeSource = "169.254.7.127"
	call := func(from testbed.Caller, network, to string) testbed.Call {
		return testbed.Call{
			From: from, Network: network, To: netip.MustParseAddrPort(to),
			Timeout: 10 * time.Second,
		}
	}
	ztunnel := func(c testbed.Call) testbed.Call {
		c.Mark = rules.ZtunnelMark
		return c
	}
	withSource := func(local string, c testbed.Call) testbed.Call {
		c.Local, c.Transparent = netip.AddrPortFrom(netip.MustParseAddr(local), 0), true
		return c
	}
	for _, backendName := range backends {
		t.Run(string(backendName), func(t *testing.T) {
			network, err := testbed.New(testbed.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { network.Close() })
			if err := network.StartProxy(testbed.ProxyOptions{Transparent: true}); err != nil {
				t.Fatal(err)
			}
			if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
				t.Fatal(err)
			}
			istiotest.Run(t, network.Neighbor, "", "ip", "address", "add", probeSource+"/32", "dev", "lo")
			rs := ambientRuleset(t)
			applyAndCheck(t, chosen(t, backendName), network.Pod, rs, nft.Created)
			if err := network.WaitForRouting(rs.Routing); err != nil {
				t.Fatal(err)
			}
			for _, tc := range []struct {
				name string
				call testbed.Call
				want testbed.Name
			}{
				{"outbound is captured", call(testbed.FromPod, "tcp", "10.9.9.9:80"), testbed.Outbound},
				{
					"outbound over IPv6 is captured",
					call(testbed.FromPod, "tcp", "[2001:db8::9]:80"), testbed.Outbound,
				},
				{
					"ztunnel's own connections are not captured",
					ztunnel(call(testbed.FromPod, "tcp", "10.9.9.9:80")), testbed.Outside,
				},
				{
					"the pod reaches itself",
					call(testbed.FromPod, "tcp", "10.244.1.5:80"), testbed.Application,
				},
				{"DNS over UDP is captured", call(testbed.FromPod, "udp", "10.9.9.9:53"), testbed.DNS},
				{"DNS over TCP is captured", call(testbed.FromPod, "tcp", "10.9.9.9:53"), testbed.DNS},
				{
					"ztunnel's queries are not captured",
					ztunnel(call(testbed.FromPod, "udp", "10.9.9.9:53")), testbed.Outside,
				},
				{
					"other datagrams are not captured",
					call(testbed.FromPod, "udp", "10.9.9.9:80"), testbed.Outside,
				},
				{
					"inbound is captured",
					call(testbed.FromNeighbor, "tcp", "10.244.1.5:80"), testbed.Inbound,
				},
				{
					"inbound over IPv6 is captured",
					call(testbed.FromNeighbor, "tcp", "[fd00:10:244:1::5]:80"), testbed.Inbound,
				},
				{
					"HBONE reaches its listener",
					call(testbed.FromNeighbor, "tcp", "10.244.1.5:15008"), testbed.Tunnel,
				},
				{
					"a probe reaches the application",
					withSource(probeSource, call(testbed.FromNeighbor, "tcp", "10.244.1.5:80")),
					testbed.Application,
				},
				{
					"ztunnel reaches the application with the client's address and receives the answer",
					withSource("10.9.9.9", ztunnel(call(testbed.FromPod, "tcp", "10.244.1.5:80"))),
					testbed.Application,
				},
				{
					"ztunnel reaches the application over IPv6 with the client's address",
					withSource("2001:db8::9", ztunnel(call(testbed.FromPod, "tcp", "[fd00:10:244:1::5]:80"))),
					testbed.Application,
				},
			} {
				a, err := network.Dial(tc.call)
				if err != nil || a.By != tc.want {
					t.Errorf("%s: %s: %s, error %v, want an answer by %s", tc.name, tc.call, a, err, tc.want)
				}
			}
		})
	}
}
