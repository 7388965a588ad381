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

// TestStuck checks that a loop is stuck if it has work and stays in the same step for longer than a
// step may take, and that it is not stuck if it is idle or makes progress. The monitor checks the
// loop every ten seconds, and the first check only records the step: a loop with a limit of a
// minute is stuck from the eighth check on.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var step atomic.Uint64
		var idle atomic.Bool
		step.Store(1)
		m := heartbeat.New(
			heartbeat.Loop{Name: "auditor", Progress: func() (uint64, bool) {
				return step.Load(), !idle.Load()
			}, MaxStep: time.Minute},
			heartbeat.Loop{Name: "server", Progress: func() (uint64, bool) {
				return uint64(time.Now().UnixNano()), true
			}, MaxStep: time.Minute},
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
			{"the first step takes too long", func() {}, 15 * time.Second, true},
			{"the second step has begun", func() { step.Add(1) }, 15 * time.Second, false},
			{"the loop is idle", func() { idle.Store(true) }, time.Hour, false},
			{"the loop has work again", func() { idle.Store(false) }, time.Minute, false},
			{"the loop makes no progress", func() {}, 15 * time.Second, true},
		} {
			phase.change()
			time.Sleep(phase.wait)
			synctest.Wait()
			err := m.Stuck()
			if (err != nil) != phase.stuck ||
				err != nil && !strings.Contains(err.Error(), "the auditor has made no progress") {
				t.Errorf("%s: stuck %t with the error %v; want stuck %t, and an error only about the auditor",
					phase.name, err != nil, err, phase.stuck)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// TestTimeWithoutRunningDoesNotCount checks that time in which the process is stopped does not
// count: the number of checks decides.
func TestTimeWithoutRunningDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := heartbeat.New(heartbeat.Loop{
			Name: "auditor", Progress: func() (uint64, bool) {
				return 1, true
			}, MaxStep: time.Minute,
		})
		checks := 0
		for ; m.Stuck() == nil; checks++ {
			ctx, cancel := context.WithTimeout(t.Context(), heartbeat.Interval+time.Second)
			m.Run(ctx)
			cancel()
			time.Sleep(time.Hour)
		}
		if checks != 8 { // the first records the step; a minute has six intervals
			t.Errorf("stuck after %d checks, want 8", checks)
		}
	})
}
