package established_test

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/nft/conntrack"
	"github.com/sluice-mesh/sluice/nft/conntrack/conntracktest"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/nft/sockdiag"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules"
)

// TestTooManySocketsAreReported covers a namespace with more TCP sockets than End keeps in memory.
// End then ends no TCP connection, because it cannot decide about all of them. It still examines
// the UDP connections.
func TestTooManySocketsAreReported(t *testing.T) {
	network := newNetwork(t, rules.ModeRedirect)
	r := rules.DefaultRedirect()
	r.OutboundCIDRs.All, r.DNS = true, rules.DNS{Capture: true, All: true}
	rs := rules.MustCompile(r)
	open := func(protocol string, port int) *testbed.Conn {
		t.Helper()
		conn, err := network.Open(testbed.Call{
			Network: protocol, Owner: testbed.ApplicationOwner, To: to("10.9.9.9", port),
			Timeout: 20 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		if answer := conn.Ask(); answer.By != testbed.Outside {
			t.Fatalf("answer %s, want an answer by %s", answer, testbed.Outside)
		}
		return conn
	}
	keepConntrack(t, network)
	conn := open("tcp", 8080)
	open("udp", 53)
	mustApply(t, network, rs)

	sockets := count(t, network.Pod, sockdiag.List(rules.TCP, sockdiag.Listening|sockdiag.Connected))
	established.SetMaxSockets(t, sockets-1)
	report, err := established.End(network.Pod, rs, established.Options{ProcDir: "/proc"})
	report.UndecidedExample = ""
	want := established.Report{
		Undecided: 1,
		Unexamined: fmt.Sprintf("examined connections: 1; the namespace has more than %d TCP sockets",
			sockets-1),
	}
	if err != nil || report != want {
		t.Errorf("%d sockets: report %+v, error %v; want %+v", sockets, report, err, want)
	}
	if answer := conn.Ask(); answer.By != testbed.Outside {
		t.Errorf("answer %s, want that the connection is kept", answer)
	}
	established.SetMaxSockets(t, sockets)
	report, err = established.End(network.Pod, rs, established.Options{ProcDir: "/proc"})
	if err != nil || report.Ended != 1 || report.Unexamined != "" {
		t.Errorf("report %+v, error %v; want one ended connection", report, err)
	}
}

// TestExaminationEndsAfterTheTime checks that the report contains the number of examined
// connections and the time limit, and that End deletes no entry after the limit.
func TestExaminationEndsAfterTheTime(t *testing.T) {
	ns := netnstest.NewPair(t).Pod
	conntracktest.AddTCP(t, ns, testbed.PodIP4, 100)
	rs := capturingRules(rules.ModeRedirect)
	report, err := established.End(ns, rs, established.Options{Time: time.Nanosecond})
	const want = "examined connections: 0; the time limit of 1ns has passed"
	if err != nil || report != (established.Report{Unexamined: want}) {
		t.Errorf("report %+v, error %v; want %q", report, err, want)
	}
	if n := count(t, ns, conntrack.List()); n != 100 {
		t.Errorf("%d conntrack entries remain, want 100", n)
	}
}

// TestManyEntriesAreDeleted checks that no entry is missed because End deletes entries while it
// lists them. The entries have no sockets, so that they are not reported.
func TestManyEntriesAreDeleted(t *testing.T) {
	ns := netnstest.NewPair(t).Pod
	conntracktest.AddTCP(t, ns, testbed.PodIP4, 3_000)
	report, err := established.End(ns, capturingRules(rules.ModeRedirect),
		established.Options{Time: time.Minute})
	if n := count(t, ns, conntrack.List()); n > 0 || err != nil || report != (established.Report{}) {
		t.Errorf("%d conntrack entries remain, report %+v, error %v; want no entries and an empty report",
			n, report, err)
	}
}

// count returns the number of objects that a list of the namespace contains.
func count[T any](t *testing.T, ns *netns.NS, list iter.Seq2[T, error]) (n int) {
	t.Helper()
	if err := ns.Do(func() error {
		for _, err := range list {
			if err != nil {
				return err
			}
			n++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}
