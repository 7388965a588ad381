package established_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/istio/istiotest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A connection is a test connection with its expected outcome.
type connection struct {
	name string
	call testbed.Call
	// gap is set if the connection is opened in the gap: while the rules are missing.
	gap bool
	// by is the server that answers, and ends reports whether End ends the connection.
	by   testbed.Name
	ends bool
}

const excludedPort = 9090

func to(address string, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port))
}

// connections returns the test connections between an outside address and a pod address.
func connections(outside, pod string) []connection {
	out := func(owner rules.Owner, port int) testbed.Call {
		return testbed.Call{
			Network: "tcp", Owner: owner, To: to(outside, port), Timeout: 20 * time.Second,
		}
	}
	in := func(port int) testbed.Call {
		return testbed.Call{
			Network: "tcp", From: testbed.FromNeighbor, To: to(pod, port),
			Timeout: 20 * time.Second,
		}
	}
	app, proxy := testbed.ApplicationOwner, testbed.ProxyOwner
	return []connection{
		{name: "a captured outbound connection", call: out(app, 8080), by: testbed.Outbound},
		{name: "a captured inbound connection", call: in(8080), by: testbed.Inbound},
		{name: "the proxy's own connection", call: out(proxy, 8080), by: testbed.Outside},
		{name: "a connection to an excluded port", call: out(app, excludedPort), by: testbed.Outside},
		{
			name: "an outbound connection in the gap", gap: true, call: out(app, 8080), by: testbed.Outside,
			ends: true,
		},
		{
			name: "an inbound connection in the gap", gap: true, call: in(8080), by: testbed.Application,
			ends: true,
		},
		{
			name: "the proxy's own connection in the gap", gap: true, call: out(proxy, 8080),
			by: testbed.Outside,
		},
		{
			name: "a connection with the proxy's group in the gap", gap: true,
			call: out(rules.Owner{UID: app.UID, GID: proxy.GID}, 8080), by: testbed.Outside,
		},
		{
			name: "a connection to an excluded port in the gap", gap: true,
			call: out(app, excludedPort), by: testbed.Outside,
		},
		{
			name: "an inbound connection to an excluded port in the gap", gap: true,
			call: in(excludedPort), by: testbed.Application,
		},
	}
}

// capturingRules returns a ruleset that captures all ports except excludedPort.
func capturingRules(mode rules.Mode) rules.Ruleset {
	r := rules.DefaultRedirect()
	r.IPv6, r.Mode = true, mode
	r.OutboundCIDRs.All, r.InboundPorts.All = true, true
	r.InboundExcludePorts, r.OutboundExcludePorts = rules.Singles[uint16](excludedPort),
		rules.Singles[uint16](excludedPort)
	return rules.MustCompile(r)
}

func newNetwork(t *testing.T, mode rules.Mode) *testbed.Network {
	t.Helper()
	return newNetworkWith(t, mode, testbed.Options{})
}

func newNetworkWith(t *testing.T, mode rules.Mode, o testbed.Options) *testbed.Network {
	t.Helper()
	network, err := testbed.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Close() })
	if err := network.StartProxy(testbed.ProxyOptions{
		Owner: testbed.ProxyOwner, Transparent: mode == rules.ModeTProxy,
	}); err != nil {
		t.Fatal(err)
	}
	if err := network.StartApplication(testbed.ApplicationOwner); err != nil {
		t.Fatal(err)
	}
	return network
}

func mustApply(t *testing.T, network *testbed.Network, rs rules.Ruleset) {
	t.Helper()
	if _, err := nft.Apply(network.Pod, rs); err != nil {
		t.Fatal(err)
	}
	if err := network.WaitForRouting(rs.Routing); err != nil {
		t.Fatal(err)
	}
}

// keepConntrack adds a foreign rule that keeps conntrack enabled in the pod.
func keepConntrack(t *testing.T, network *testbed.Network) {
	t.Helper()
	istiotest.Run(t, network.Pod, `table inet foreign {
		chain out { type filter hook output priority 0; ct state new counter; }
	}`, "nft", "-f", "-")
}

// TestConnectionsOpenedDuringDriftAreEnded removes the rules and adds them again. If tracked is
// set, a rule of another table keeps conntrack enabled in the gap.
func TestConnectionsOpenedDuringDriftAreEnded(t *testing.T) {
	for _, mode := range []rules.Mode{rules.ModeRedirect, rules.ModeTProxy} {
		for _, tracked := range []bool{false, true} {
			for family, list := range map[rules.Family][]connection{
				rules.IPv4: connections("10.9.9.9", testbed.PodIP4.String()),
				rules.IPv6: connections("2001:db8:9::9", testbed.PodIP6.String()),
			} {
				t.Run(fmt.Sprintf("%s, tracked %t, IPv%d", mode, tracked,
					family), func(t *testing.T) {
					testGap(t, newNetwork(t, mode), capturingRules(mode), tracked, list,
						established.Options{ProcDir: "/proc"})
				})
			}
		}
	}
}

// testGap opens the connections before and in the gap, and checks that End ends exactly the
// expected connections.
func testGap(
	t *testing.T, network *testbed.Network, rs rules.Ruleset, tracked bool, list []connection,
	o established.Options,
) {
	t.Helper()
	mustApply(t, network, rs)
	open := make([]*testbed.Conn, len(list))
	openConnections := func(gap bool) {
		for i, c := range list {
			if c.gap != gap {
				continue
			}
			conn, err := network.Open(c.call)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			if answer := conn.Ask(); answer.By != c.by {
				t.Fatalf("%s: answer %s, want an answer by %s", c.name, answer, c.by)
			}
			open[i] = conn
		}
	}
	openConnections(false)
	if tracked {
		keepConntrack(t, network)
	}
	if _, err := nft.Remove(network.Pod); err != nil {
		t.Fatal(err)
	}
	openConnections(true)
	mustApply(t, network, rs)
	report, err := established.End(network.Pod, rs, o)
	t.Logf("%+v", report)
	if err != nil {
		t.Fatal(err)
	}
	bypassing := 0
	for i, c := range list {
		answer := open[i].Ask()
		if c.ends {
			bypassing++
		}
		ended, wantEnded := answer.By != c.by, c.ends && !o.CountOnly
		if ended != wantEnded {
			t.Errorf("%s: answer %s, ended: %t, want %t", c.name, answer, ended, wantEnded)
		}
	}
	want := established.Report{Ended: bypassing}
	if o.CountOnly {
		want = established.Report{Kept: bypassing}
	}
	if !strings.Contains(report.Example, ":8080") {
		t.Errorf("example %q, want a connection to port 8080", report.Example)
	}
	if report.Example = ""; report != want {
		t.Errorf("report %+v, want %+v", report, want)
	}
}

// TestCountOnlyKeepsConnections checks that the connections are counted but not ended. Conntrack
// remains enabled in the gap; otherwise the rules would redirect the packets of the kept
// connections like packets of new ones.
func TestCountOnlyKeepsConnections(t *testing.T) {
	testGap(t, newNetwork(t, rules.ModeRedirect), capturingRules(rules.ModeRedirect), true,
		connections("10.9.9.9", testbed.PodIP4.String()),
		established.Options{ProcDir: "/proc", CountOnly: true})
}
