package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

const (
	// maxVisitTime is the maximum time of the auditor for one pod: entering its namespace, reading
	// and repairing its rules, and requests to the API server take seconds each.
	maxVisitTime = 2 * time.Minute
	// maxSilence is the maximum time without a reply of the socket, answerTimeout the maximum time
	// for one reply.
	maxSilence    = time.Minute
	answerTimeout = 5 * time.Second
)

// loops returns the loops that must make progress for the agent to be alive: installer, auditor and
// server.
func (a *Agent) loops() []heartbeat.Loop {
	loops := []heartbeat.Loop{{
		Name: "installer", Longest: a.maxSyncInterval(),
		Progress: func() (uint64, bool) {
			s := a.node.Status()
			return s.Totals.Passes, !s.At.IsZero()
		},
	}}
	if a.auditor != nil {
		loops = append(loops,
			heartbeat.Loop{Name: "auditor", Longest: maxVisitTime, Progress: a.auditor.Progress},
			heartbeat.Loop{
				Name: "auditor's list of pods", Longest: maxVisitTime, Progress: a.auditor.Waiting,
			},
		)
	}
	if a.server != nil {
		loops = append(loops, heartbeat.Loop{
			Name: "socket of the plugin", Longest: maxSilence, Progress: a.caller.progress,
		})
	}
	return loops
}

// A caller sends requests to the agent's socket as the plugin does: a listening socket alone does
// not show that requests are answered.
type caller struct {
	listening func() bool
	ask       func(context.Context) error
	answers   atomic.Uint64
}

// newCaller returns a caller that is active while the socket is listening.
func newCaller(socket string, listening func() bool) *caller {
	return &caller{listening: listening, ask: func(ctx context.Context) error {
		_, err := agent.Caller{Socket: socket}.Query(ctx, agent.Request{Verb: agent.GetPolicy})
		return err
	}}
}

// run sends requests until ctx is done.
func (c *caller) run(ctx context.Context) {
	ticker := time.NewTicker(heartbeat.Pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !c.listening() {
			continue
		}
		requestCtx, cancel := context.WithTimeout(ctx, answerTimeout)
		if c.ask(requestCtx) == nil {
			c.answers.Add(1)
		}
		cancel()
	}
}

func (c *caller) progress() (uint64, bool) { return c.answers.Load(), c.listening() }
