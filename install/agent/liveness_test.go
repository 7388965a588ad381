package agent

import (
	"context"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
	"github.com/sluice-mesh/sluice/plugin/agent/agenttest"
)

// TestSocketThatDoesNotAnswer checks that liveness fails if the agent listens on the socket and
// does not answer, but does not fail if the socket is missing or the agent answers.
func TestSocketThatDoesNotAnswer(t *testing.T) {
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

// TestRequestToItself checks that the agent's request to its own socket succeeds with an answer,
// and fails without one.
func TestRequestToItself(t *testing.T) {
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
