package agent

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

const (
	// longestVisit is how long the auditor may be at one pod: it enters it, reads and repairs its
	// rules, and asks the API server, each within seconds.
	longestVisit = 2 * time.Minute
	// longestSilence is how long the socket may not answer, longestAnswer how long one answer may
	// take.
	longestSilence = time.Minute
	longestAnswer  = 5 * time.Second
)

// loops are what must make progress for the agent to be alive: what keeps the node, what audits,
// and what answers the plugin.
func (a *Agent) loops() []heartbeat.Loop {
	loops := []heartbeat.Loop{{Name: "installer", Longest: a.longestSync(), Progress: func() (uint64, bool) {
		s := a.node.Status()
		return s.Totals.Passes, !s.At.IsZero()
	}}}
	if a.auditor != nil {
		loops = append(loops,
			heartbeat.Loop{Name: "auditor", Longest: longestVisit, Progress: a.auditor.Progress},
			heartbeat.Loop{Name: "auditor's list of pods", Longest: longestVisit, Progress: a.auditor.Waiting},
		)
	}
	if a.server != nil {
		loops = append(loops, heartbeat.Loop{Name: "socket of the plugin", Longest: longestSilence, Progress: a.caller.progress})
	}
	return loops
}

// A caller asks the agent's own socket, as the plugin does: that it listens does not say that
// anybody answers.
type caller struct {
	listening func() bool
	ask       func(context.Context) error
	answers   atomic.Uint64
}

// newCaller returns a caller of the socket, as long as that listens.
func newCaller(socket string, listening func() bool) *caller {
	return &caller{listening: listening, ask: func(ctx context.Context) error {
		_, err := agent.Caller{Socket: socket}.Ask(ctx, agent.Request{Verb: agent.AskPolicy})
		return err
	}}
}

// run asks until ctx ends.
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
		asking, cancel := context.WithTimeout(ctx, longestAnswer)
		if c.ask(asking) == nil {
			c.answers.Add(1)
		}
		cancel()
	}
}

func (c *caller) progress() (uint64, bool) { return c.answers.Load(), c.listening() }
