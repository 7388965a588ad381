// Package heartbeat finds loops that are stuck: that have something to do and make no progress.
// Time is counted by looks of its own, of which there are none while the process is stopped, is
// given no processor, or the node sleeps. So a loop is not taken for stuck because the clock has
// moved.
package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Pause is the time from one look to the next.
const Pause = 10 * time.Second

// A Loop is something that must make progress.
type Loop struct {
	// Name is a word for the error.
	Name string
	// Progress returns a number that changes with each step, and whether the loop has anything to
	// do. It must not wait.
	Progress func() (step uint64, busy bool)
	// Longest is how long one step may take.
	Longest time.Duration

	last  uint64
	looks int // in which the step was the same one
}

// A Monitor watches loops. It is safe for concurrent use.
type Monitor struct {
	mu    sync.Mutex
	loops []Loop
}

// New returns a monitor of loops.
func New(loops ...Loop) *Monitor { return &Monitor{loops: loops} }

// Run looks at the loops until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	ticker := time.NewTicker(Pause)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.look()
		}
	}
}

func (m *Monitor) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.loops {
		l := &m.loops[i]
		step, busy := l.Progress()
		if !busy || step != l.last {
			l.looks = 0
		} else {
			l.looks++
		}
		l.last = step
	}
}

// Stuck returns an error that names the loops that have made no progress for longer than they may;
// nil if there are none.
func (m *Monitor) Stuck() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, l := range m.loops {
		if idle := time.Duration(l.looks) * Pause; idle > l.Longest {
			errs = append(errs, fmt.Errorf("the %s has made no progress for %s; it may take %s for a step", l.Name, idle, l.Longest))
		}
	}
	return errors.Join(errs...)
}
