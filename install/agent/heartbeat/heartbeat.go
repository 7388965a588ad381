// Package heartbeat detects stuck loops, which have work and make no progress. It measures time by
// the number of its own checks, which do not run while the process or the node is suspended. A loop
// therefore does not count as stuck after a suspension or a jump of the clock.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Interval is the time between two checks.
const Interval = 10 * time.Second

// A Loop is a loop that must make progress.
type Loop struct {
	// Name names the loop in the error of [Monitor.Stuck].
	Name string
	// Progress returns a number that changes with each step, and whether the loop has work.
	// Progress must not block.
	Progress func() (step uint64, busy bool)
	// MaxStep is the maximum duration of a step.
	MaxStep time.Duration

	last          uint64 // step at the last check
	stalledChecks int    // number of consecutive checks without progress
}

// A Monitor monitors loops. It is safe for concurrent use.
type Monitor struct {
	mu    sync.Mutex
	loops []Loop
}

// New returns a monitor of loops.
func New(loops ...Loop) *Monitor { return &Monitor{loops: loops} }

// Run checks the loops until ctx is done.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(Interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.recordProgress()
		}
	}
}

// recordProgress counts, for each loop, the consecutive checks at which it has work and the same
// step as before.
func (m *Monitor) recordProgress() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.loops {
		l := &m.loops[i]
		step, busy := l.Progress()
		if !busy || step != l.last {
			l.stalledChecks = 0
		} else {
			l.stalledChecks++
		}
		l.last = step
	}
}

// Stuck returns an error that names the loops that have made no progress for longer than
// [Loop.MaxStep], or nil if there are none.
func (m *Monitor) Stuck() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, l := range m.loops {
		if stalled := time.Duration(l.stalledChecks) * Interval; stalled > l.MaxStep {
			errs = append(errs,
				fmt.Errorf("the %s has made no progress for %s; a step may take at most %s", l.Name,
					stalled, l.MaxStep))
		}
	}
	return errors.Join(errs...)
}
