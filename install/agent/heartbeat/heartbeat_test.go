package heartbeat_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
)

// A loop is stuck when it has something to do and its step stays the same for longer than a step
// may take; it is not when it has nothing to do, or goes on.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var step atomic.Uint64
		var idle atomic.Bool
		step.Store(1)
		m := heartbeat.New(
			heartbeat.Loop{Name: "auditor", Progress: func() (uint64, bool) {
				return step.Load(), !idle.Load()
			}, Longest: time.Minute},
			heartbeat.Loop{Name: "server", Progress: func() (uint64, bool) {
				return uint64(time.Now().UnixNano()), true
			}, Longest: time.Minute},
		)
		ctx, cancel := context.WithCancel(t.Context())
		go m.Run(ctx)
		for _, phase := range []struct {
			name   string
			change func()
			wait   time.Duration
			stuck  bool
		}{
			{"the first step has begun", func() {}, 70 * time.Second, false},
			{"and goes on", func() {}, 15 * time.Second, true},
			{"it has ended", func() { step.Add(1) }, 15 * time.Second, false},
			{"there is nothing to do", func() { idle.Store(true) }, time.Hour, false},
			{"there is again", func() { idle.Store(false) }, time.Minute, false},
			{"and it hangs", func() {}, 15 * time.Second, true},
		} {
			phase.change()
			time.Sleep(phase.wait)
			synctest.Wait()
			err := m.Stuck()
			if (err != nil) != phase.stuck ||
				err != nil && !strings.Contains(err.Error(), "the auditor has made no progress") {
				t.Errorf("%s: %v, want stuck %v", phase.name, err, phase.stuck)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// Hours in which the monitor does not run, since the process is stopped, are not the loop's: what
// counts is how often it was seen.
func TestTimeWithoutRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := heartbeat.New(heartbeat.Loop{
			Name: "auditor", Progress: func() (uint64, bool) {
				return 1, true
			}, Longest: time.Minute,
		})
		looks := 0
		for ; m.Stuck() == nil; looks++ {
			ctx, cancel := context.WithTimeout(t.Context(), heartbeat.Pause+time.Second)
			m.Run(ctx)
			cancel()
			time.Sleep(time.Hour)
		}
		if looks != 8 { // the first of which shows the step, and the eighth more than six pauses
			t.Errorf("stuck after %d looks", looks)
		}
	})
}
