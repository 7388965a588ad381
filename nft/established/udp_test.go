package established_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestUDPConnectionsInTheGapAreUndecided covers DNS queries, whose capture depends on the owner of
// the socket. End does not know the owners of UDP sockets. The rules assign another conntrack zone
// to captured queries, and therefore capture the next query of the application's socket.
func TestUDPConnectionsInTheGapAreUndecided(t *testing.T) {
	network := newNetwork(t, rules.ModeRedirect)
	r := rules.DefaultRedirect()
	r.DNS = rules.DNS{Capture: true, All: true}
	rs := rules.MustCompile(r)
	open := func(owner rules.Owner, by testbed.Name) *testbed.Conn {
		t.Helper()
		conn, err := network.Open(testbed.Call{
			Network: "udp", Owner: owner, To: to("10.9.9.9", 53),
			Timeout: 20 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		if answer := conn.Ask(); answer.By != by {
			t.Fatalf("answer %s, want an answer by %s", answer, by)
		}
		return conn
	}
	mustApply(t, network, rs)
	application := open(testbed.ApplicationOwner, testbed.DNS)
	proxy := open(testbed.ProxyOwner, testbed.Outside)
	keepConntrack(t, network)
	if _, err := nft.Remove(network.Pod); err != nil {
		t.Fatal(err)
	}
	applicationInGap := open(testbed.ApplicationOwner, testbed.Outside)
	proxyInGap := open(testbed.ProxyOwner, testbed.Outside)
	mustApply(t, network, rs)
	report, err := established.End(network.Pod, rs, established.Options{ProcDir: "/proc"})
	report.UndecidedExample = ""
	if want := (established.Report{Undecided: 2}); err != nil || report != want {
		t.Errorf("report %+v, error %v, want %+v", report, err, want)
	}
	for _, row := range []struct {
		name string
		conn *testbed.Conn
		by   testbed.Name
	}{
		{"a query of the application", application, testbed.DNS},
		{"a query of the proxy", proxy, testbed.Outside},
		{"a query of the application in the gap", applicationInGap, testbed.DNS},
		{"a query of the proxy in the gap", proxyInGap, testbed.Outside},
	} {
		if answer := row.conn.Ask(); answer.By != row.by {
			t.Errorf("%s: answer %s to the next query, want an answer by %s", row.name, answer, row.by)
		}
	}
}
