package established_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// ambientConnections returns test connections of a pod in ambient mode. The rules recognize the
// sockets of ztunnel by their mark, not by their owner.
func ambientConnections(outside, pod, client, probeSource string) []connection {
	out := func(mark uint32) testbed.Call {
		return testbed.Call{
			Network: "tcp", Owner: testbed.ApplicationOwner, Mark: mark, To: to(outside, 8080),
			Timeout: 20 * time.Second,
		}
	}
	in := func(port int) testbed.Call {
		return testbed.Call{
			Network: "tcp", From: testbed.FromNeighbor, To: to(pod, port),
			Timeout: 20 * time.Second,
		}
	}
	probe := in(8080)
	probe.Local = netip.AddrPortFrom(netip.MustParseAddr(probeSource), 0)
	toApplication := testbed.Call{
		Network: "tcp", Mark: rules.ZtunnelMark, Transparent: true, To: to(pod, 8080),
		Local:   netip.AddrPortFrom(netip.MustParseAddr(client), 0),
		Timeout: 20 * time.Second,
	}
	return []connection{
		{name: "a captured outbound connection", call: out(0), by: testbed.Outbound},
		{name: "a captured inbound connection", call: in(8080), by: testbed.Inbound},
		{name: "ztunnel's own connection", call: out(rules.ZtunnelMark), by: testbed.Outside},
		{
			name: "ztunnel's connection to the application with the client's address",
			call: toApplication, by: testbed.Application,
		},
		{name: "HBONE", call: in(rules.DefaultTunnelPort), by: testbed.Tunnel},
		{name: "a probe", call: probe, by: testbed.Application},
		{
			name: "an outbound connection in the gap", gap: true, call: out(0),
			by: testbed.Outside, ends: true,
		},
		{
			name: "an inbound connection in the gap", gap: true, call: in(8080), by: testbed.Application,
			ends: true,
		},
		{
			name: "ztunnel's own connection in the gap", gap: true, call: out(rules.ZtunnelMark),
			by: testbed.Outside,
		},
		{
			name: "HBONE in the gap", gap: true, call: in(rules.DefaultTunnelPort),
			by: testbed.Tunnel,
		},
		{name: "a probe in the gap", gap: true, call: probe, by: testbed.Application},
	}
}

// TestConnectionsThatBypassZtunnelAreEnded removes the rules of a pod in ambient mode and adds them
// again.
func TestConnectionsThatBypassZtunnelAreEnded(t *testing.T) {
	rs, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err != nil {
		t.Fatal(err)
	}
	const probeSource4, probeSource6 = "169.254.7.127", "fd16:9254:7127:1337:ffff:ffff:ffff:ffff"
	for _, tracked := range []bool{false, true} {
		for family, list := range map[rules.Family][]connection{
			rules.IPv4: ambientConnections("10.9.9.9", testbed.PodIP4.String(), "10.8.8.8", probeSource4),
			rules.IPv6: ambientConnections("2001:db8:9::9", testbed.PodIP6.String(), "2001:db8:8::8",
				probeSource6),
		} {
			t.Run(fmt.Sprintf("tracked %t, IPv%d", tracked, family), func(t *testing.T) {
				network := newNetwork(t, rules.ModeTProxy)
				for _, a := range []string{probeSource4 + "/32", probeSource6 + "/128"} {
					istiotest.Run(t, network.Neighbor, "", "ip", "address", "add", a, "dev", "lo", "nodad")
				}
				testGap(t, network, rs, tracked, list, established.Options{ProcDir: "/proc"})
			})
		}
	}
}
