package established_test

import (
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestRulesCompareIDsOfTheUserNamespace covers a pod with hostUsers: false. The kernel lists the
// sockets with ids of this process's user namespace.
func TestRulesCompareIDsOfTheUserNamespace(t *testing.T) {
	ns := netnstest.NewInUserNS(t)
	netnstest.StartInUserNS(t, ns)
	network := newNetworkWith(t, rules.ModeRedirect, testbed.Options{
		Pod: ns, IDBase: netnstest.UserNSBase,
	})
	testGap(t, network, capturingRules(rules.ModeRedirect), true,
		connections("10.9.9.9", testbed.PodIP4.String()), established.Options{ProcDir: "/proc"})
}

// TestOwnersAreUnknownWithoutIDMaps covers a user namespace without a process from which End could
// read the id maps.
func TestOwnersAreUnknownWithoutIDMaps(t *testing.T) {
	network := newNetworkWith(t, rules.ModeRedirect, testbed.Options{
		Pod: netnstest.NewInUserNS(t), IDBase: netnstest.UserNSBase,
	})
	checkUndecided(t, network, testbed.ProxyOwner, established.Options{ProcDir: "/proc"})
}

// TestConnectionsWithUnknownGroupAreKept covers a connection that may bypass the proxy only if its
// socket has the proxy's group.
func TestConnectionsWithUnknownGroupAreKept(t *testing.T) {
	checkUndecided(t, newNetwork(t, rules.ModeRedirect), testbed.ApplicationOwner,
		established.Options{})
}

// checkUndecided checks that a connection that the owner opened while the rules were missing is
// undecided.
func checkUndecided(
	t *testing.T, network *testbed.Network, owner rules.Owner, o established.Options,
) {
	t.Helper()
	conn, err := network.Open(testbed.Call{
		Network: "tcp", Owner: owner, To: to("10.9.9.9", 8080), Timeout: 20 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if answer := conn.Ask(); answer.By != testbed.Outside {
		t.Fatalf("answer %s, want an answer by %s", answer, testbed.Outside)
	}
	rs := capturingRules(rules.ModeRedirect)
	mustApply(t, network, rs)
	report, err := established.End(network.Pod, rs, o)
	if err != nil || report.Undecided != 1 || report.Ended != 0 || report.UndecidedExample == "" {
		t.Errorf("report %+v, error %v, want one undecided connection with an example", report, err)
	}
}
