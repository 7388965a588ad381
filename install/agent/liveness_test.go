package agent

import (
	"context"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
)

// TestLivenessFailsIfTheSocketDoesNotAnswer checks that liveness fails if the agent listens on the
// socket and does not answer, but does not fail if the socket is missing or the agent answers.
func TestLivenessFailsIfTheSocketDoesNotAnswer(t *testing.T) {
	for _, row := range []struct {
		name             string
		listens, replies bool
		stuck            bool
	}{
		{"the socket answers", true, true, false},
		{"the socket cannot be created", false, false, false},
		{"the socket listens and does not answer", true, false, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			probe := &socketProbe{listening: func() bool {
				return row.listens
			}, request: func(ctx context.Context) error {
				if !row.replies {
					<-ctx.Done()
				}
				return ctx.Err()
			}}
			m := heartbeat.New(heartbeat.Loop{
				Name: "socket", MaxStep: maxSilence, Progress: probe.progress,
			})
			ctx, cancel := context.WithCancel(t.Context())
			go probe.run(ctx)
			go m.Run(ctx)
			time.Sleep(2 * maxSilence)
			synctest.Wait()
			if err := m.Stuck(); (err != nil) != row.stuck {
				t.Errorf("%s: stuck %t with the error %v, want stuck %t", row.name, err != nil, err,
					row.stuck)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// TestRequestToItselfNeedsAnAnswer checks that the agent's request to its own socket succeeds with
// an answer, and fails without one.
func TestRequestToItselfNeedsAnAnswer(t *testing.T) {
	alive := agenttest.Listen(t, agenttest.Reply(t, agenttest.Frames(`{"version":1}`, `{}`)))
	mute := agenttest.Listen(t, func(c *net.UnixConn) { _, _ = c.Read(make([]byte, 1<<10)) })
	for socket, want := range map[string]string{alive: "", mute: "no answer"} {
		ctx, cancel := context.WithTimeout(t.Context(), replyTimeout)
		err := newSocketProbe(socket, nil).request(ctx)
		cancel()
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("the request returns the error %v; want the text %q, empty for no error", err, want)
		}
	}
}

// TestLivenessFailsIfALoopIsStuck checks that the probe for liveness fails if one of the agent's
// loops is stuck, and that loops of disabled features are not monitored.
func TestLivenessFailsIfALoopIsStuck(t *testing.T) {
	server := "socket of the plugin"
	audit := []string{"auditor", "auditor's list of pods"}
	for _, row := range []struct {
		name, serve, audit string
		want               []string
	}{
		{"serving and audit", "true", "true", append(slices.Clone(audit), server)},
		{"serving, which uses the auditor to locate pods", "true", "false", append(slices.Clone(audit), server)},
		{"audit", "false", "true", audit},
		{"installation only", "false", "false", nil},
	} {
		a := newAgent(t, map[string]string{
			"SLUICE_SERVE": row.serve, "SLUICE_AUDIT": row.audit, "REPAIR_ENABLED": row.audit,
		})
		var got []string
		for _, l := range a.loops() {
			got = append(got, l.Name)
		}
		if want := append([]string{"installer"}, row.want...); !slices.Equal(got, want) {
			t.Errorf("%s: the loops are %q, want %q", row.name, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, nil)
		a.socketProbe.listening = func() bool { return true } // and no request is answered
		ctx, cancel := context.WithCancel(t.Context())
		go a.heartbeat.Run(ctx)
		time.Sleep(2 * maxSilence)
		synctest.Wait()
		w := httptest.NewRecorder()
		a.healthHandler().ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		if w.Code != 503 || !strings.Contains(w.Body.String(), server) {
			t.Errorf("/healthz with a stuck loop: %d %s, want 503 with %s", w.Code, w.Body, server)
		}
		cancel()
		synctest.Wait()
	})
}

// TestPortsKnowTheNode checks that the limits of the ports distinguish the node's addresses from
// others.
func TestPortsKnowTheNode(t *testing.T) {
	p := newAgent(t, map[string]string{"SLUICE_NODE_IP": "192.0.2.7"}).newPort("health", nil)
	for address, want := range map[string]bool{"192.0.2.7": true, "192.0.2.8": false} {
		if got := p.FromNode(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s belongs to the node: %t, want %t", address, got, want)
		}
	}
}
