package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

const (
	// maxPodTime is the maximum time of the auditor for one pod. Entering its namespace, reading
	// and repairing its rules, and requests to the API server can take seconds each.
	maxPodTime = 2 * time.Minute
	// maxSilence is the maximum time without a reply on the plugin's socket.
	maxSilence = time.Minute
	// replyTimeout is the maximum time for one reply on the plugin's socket.
	replyTimeout = 5 * time.Second
)

// loops returns the loops that must make progress for the agent to be alive: the installer, the two
// loops of the auditor, and the server.
func (a *Agent) loops() []heartbeat.Loop {
	loops := []heartbeat.Loop{{
		Name: "installer", MaxStep: a.maxReconcileInterval(),
		Progress: func() (uint64, bool) {
			s := a.node.Status()
			return s.Totals.Reconciliations, !s.At.IsZero()
		},
	}}
	if a.auditor != nil {
		// Listing the pods takes far less time than maxPodTime, which limits both loops.
		loops = append(loops,
			heartbeat.Loop{Name: "auditor", MaxStep: maxPodTime, Progress: a.auditor.Progress},
			heartbeat.Loop{
				Name: "auditor's list of pods", MaxStep: maxPodTime, Progress: a.auditor.ChangeProgress,
			},
		)
	}
	if a.server != nil {
		loops = append(loops, heartbeat.Loop{
			Name: "socket of the plugin", MaxStep: maxSilence, Progress: a.socketProbe.progress,
		})
	}
	return loops
}

// A socketProbe tests whether the agent answers requests on its socket, by sending requests like
// the plugin.
type socketProbe struct {
	listening func() bool
	request   func(context.Context) error
	replies   atomic.Uint64 // number of received replies
}

// newSocketProbe returns a probe that sends requests while listening returns true.
func newSocketProbe(socket string, listening func() bool) *socketProbe {
	return &socketProbe{listening: listening, request: func(ctx context.Context) error {
		_, err := agent.Caller{Socket: socket}.Query(ctx, agent.Request{Verb: agent.GetPolicy})
		return err
	}}
}

// run sends requests until ctx is done.
func (p *socketProbe) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat.Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !p.listening() {
			continue
		}
		requestCtx, cancel := context.WithTimeout(ctx, replyTimeout)
		if p.request(requestCtx) == nil {
			p.replies.Add(1)
		}
		cancel()
	}
}

func (p *socketProbe) progress() (uint64, bool) { return p.replies.Load(), p.listening() }
