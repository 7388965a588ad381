package audit_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/testbed"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// TestConnectionsOpenedWithoutRulesAreEnded covers a connection that was opened while rules were
// missing. The repair ends it, or only counts it if the agent is configured to keep connections.
func TestConnectionsOpenedWithoutRulesAreEnded(t *testing.T) {
	for _, keep := range []bool{false, true} {
		network := newNetwork(t)
		r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "200ms"})
		r.options.Connections = established.Options{ProcDir: "/proc", CountOnly: keep}
		r.options.ProcessorTime = func() time.Duration { return 0 }
		_, b := r.add("web", network.Pod, compat.BackendNFT)
		if _, err := b.Remove(network.Pod); err != nil {
			t.Fatal(err)
		}
		conn, err := network.Open(testbed.Call{
			Network: "tcp", Owner: testbed.ApplicationOwner,
			To: netip.MustParseAddrPort("10.9.9.9:80"), Timeout: 5 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Close)
		if answer := conn.Ask(); answer.By != testbed.Outside {
			t.Fatalf("before the repair: %s, want an answer from outside", answer)
		}
		r.start()
		rulestest.Eventually(t, "the pod is repaired", func() bool { return r.states() == "1 redirected" })
		result, text := "ended", "bypass the proxy: 1 ended"
		if keep {
			result, text = "kept", "bypass the proxy: 1 kept, as the agent is configured to do"
		}
		rulestest.Eventually(t, "the connection is counted", func() bool {
			return r.metric("sluice_bypassing_connections_total{"+result+"}") == 1
		})
		rulestest.Eventually(t, "the connection is reported", func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.events) > 0 && strings.Contains(r.events[0].Message, text)
		})
		if answer := conn.Ask(); !keep && answer.By != "" {
			t.Errorf("the connection was not ended: %s", answer)
		}
	}
}

// TestConnectionsAreReportedAfterARepair covers connections that were ended, could not be ended, or
// were kept because it is unknown whether they bypass the proxy.
func TestConnectionsAreReportedAfterARepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.bypassing = established.Report{
				Ended: 3, Broken: 1, Failed: 2, Undecided: 4,
				Example: "tcp 10.0.0.7:40000 > 10.9.9.9:80",
			}
		})
		if s.ended != 0 {
			t.Error("connections were ended without a repair")
		}
		env.flush(s)
		advance(time.Second)
		const want = "; connections that were opened before the repair and bypass or may bypass the proxy: " +
			"3 ended, 2 could not be ended, 4 kept, because it is unknown whether they bypass the proxy; " +
			"a connection that bypassed the proxy: tcp 10.0.0.7:40000 > 10.9.9.9:80"
		if s.ended != 1 || len(env.events) != 1 || !strings.HasSuffix(env.events[0].Message, want) {
			t.Errorf("ended connections %d times, events %+v; want once, one event that ends with %q",
				s.ended, env.events, want)
		}
		for result, n := range map[string]float64{"ended": 3, "failed": 2, "undecided": 4} {
			if got := env.metric("sluice_bypassing_connections_total{" + result + "}"); got != n {
				t.Errorf("%s: counted %v, want %v", result, got, n)
			}
		}
	})
}

// TestConnectionsThatWereNotExaminedAreReported checks that the event and the metric of a repair
// report connections beyond the limits of an examination, even if no other connection is reported.
func TestConnectionsThatWereNotExaminedAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.bypassing = established.Report{
				Unexamined: "examined connections: 7; the time limit of 2s has passed",
			}
		})
		env.flush(s)
		advance(time.Second)
		const want = "bypass the proxy: others are unknown (examined connections: 7; " +
			"the time limit of 2s has passed)"
		if len(env.events) != 1 || !strings.HasSuffix(env.events[0].Message, want) {
			t.Errorf("events %+v; want one that ends with %q", env.events, want)
		}
		if n := env.metric("sluice_bypassing_connections_total{error}"); n != 1 {
			t.Errorf("counted %v pods with unknown connections, want 1", n)
		}
	})
}

// TestConnectionsThatCannotBeCheckedAreReported checks that the event of a repair reports that
// connections that bypass the proxy may remain.
func TestConnectionsThatCannotBeCheckedAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.endErr = errors.New("no memory")
		})
		env.flush(s)
		advance(time.Second)
		const want = "bypass the proxy: not all could be checked or ended: no memory"
		if n := env.metric("sluice_bypassing_connections_total{error}"); n != 1 || len(env.events) != 1 ||
			!strings.HasSuffix(env.events[0].Message, want) {
			t.Errorf("%v counted errors, events %+v; want 1, one event that ends with %q", n, env.events, want)
		}
	})
}
