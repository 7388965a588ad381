package testbed_test

import (
	"slices"
	"testing"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestProxyForwards checks that redirected requests reach their destination through a forwarding
// proxy.
func TestProxyForwards(t *testing.T) {
	for _, tc := range []struct {
		mode  rules.Mode
		owner rules.Owner
	}{{rules.ModeRedirect, testbed.ProxyOwner}, {rules.ModeTProxy, testbed.TProxyOwner}} {
		t.Run(string(tc.mode), func(t *testing.T) {
			n := newNetwork(t, testbed.Options{}, testbed.ProxyOptions{
				Owner: tc.owner, Transparent: tc.mode == rules.ModeTProxy, Forward: true,
			})
			r := rules.DefaultRedirect()
			r.Mode, r.InboundPorts.All, r.OutboundCIDRs.All, r.IPv6 = tc.mode, true, true, true
			rs := rules.MustCompile(r)
			if _, err := nft.Apply(n.Pod, rs); err != nil {
				t.Fatal(err)
			}
			if err := n.WaitForRouting(rs.Routing); err != nil {
				t.Fatal(err)
			}
			for _, route := range []struct {
				from testbed.Caller
				to   []string
				path []testbed.Name
			}{
				{
					testbed.FromPod,
					[]string{"10.9.9.9:80", "[2001:db8::9]:80"},
					[]testbed.Name{testbed.Outbound, testbed.Outside},
				},
				{
					testbed.FromNeighbor,
					[]string{"10.244.1.5:80", "[fd00:10:244:1::5]:80"},
					[]testbed.Name{testbed.Inbound, testbed.Application},
				},
			} {
				for _, to := range route.to {
					c := call(route.from, "tcp", to)
					c.Owner = testbed.ApplicationOwner
					conn, err := n.Open(c)
					if err != nil {
						t.Fatal(err)
					}
					for range 2 {
						a := conn.Ask()
						var path []testbed.Name
						for _, h := range append([]testbed.Hop{a.Hop}, a.Upstream...) {
							path = append(path, h.By)
							if h.To != c.To {
								t.Errorf("%s: %s received a request for %s, want %s", c, h.By, h.To,
									c.To)
							}
						}
						if !slices.Equal(path, route.path) {
							t.Errorf("%s: %s, want the servers %s", c, a, route.path)
						}
					}
					conn.Close()
				}
			}
		})
	}
}
