package audit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// TestTheEventQueueIsBounded checks that during an outage of the API server the oldest events
// beyond the limit are dropped, and that there is one attempt per half minute for all events.
func TestTheEventQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unavailable atomic.Bool
		unavailable.Store(true)
		var tries atomic.Int32
		var sent []string
		q := newEventQueue(func(_ context.Context, e cluster.Event) error {
			tries.Add(1)
			if unavailable.Load() {
				return errors.New("unavailable")
			}
			sent = append(sent, e.Reason)
			return nil
		}, zap.NewNop())
		for i := range maxQueueLen + 7 {
			q.add(cluster.Event{Reason: fmt.Sprint(i), Time: time.Now()})
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.run(ctx)
		}()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if tries := tries.Load(); tries != 11 { // the first attempt is immediate
			t.Errorf("%d attempts in five minutes, want 11", tries)
		}
		unavailable.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		// The oldest events, 0 to 6, were dropped. Each of the 11 attempts then moved the oldest
		// event to the end of the queue.
		if len(sent) != maxQueueLen || sent[0] != "18" || sent[len(sent)-1] != "17" {
			t.Errorf("%d events were sent, from %s to %s; want %d, from 18 to 17", len(sent), sent[0],
				sent[len(sent)-1], maxQueueLen)
		}
		cancel()
		<-done
	})
}
