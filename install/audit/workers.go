package audit

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// workers is the number of pods that are audited concurrently.
const workers = 2

// runWorkers audits the pods in the queue until the context ends, and waits for running audits. The
// queue gives a pod to one worker at a time. Pods cannot be removed from the queue. It may
// therefore contain pods that are no longer in a.pods; their audits have no effect.
func (a *Auditor) runWorkers(ctx context.Context, audit func(ctx context.Context, uid string)) {
	queue := a.queue
	defer context.AfterFunc(ctx, queue.ShutDown)()
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				uid, shutdown := queue.Get()
				if shutdown {
					return
				}
				if ctx.Err() == nil { // a queue that shuts down still returns its items
					number := a.running.begin()
					audit(ctx, uid)
					a.running.end(number)
				}
				queue.Done(uid)
			}
		})
	}
	group.Wait()
}

// newQueue returns the queue of the UIDs of pods. Its rate limiter determines the backoff for
// sandbox searches.
func newQueue(begin time.Time) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue[string](newAlignedDelays(begin))
}

// alignedDelays shortens each delay of a rate limiter so that it ends at a multiple of the delay
// after begin. Items with the same delay are then due at the same time, and one search serves all
// of them.
type alignedDelays struct {
	workqueue.TypedRateLimiter[string]
	begin time.Time
}

func newAlignedDelays(begin time.Time) alignedDelays {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[string](initialSearchBackoff,
		maxSearchBackoff)
	return alignedDelays{delays, begin}
}

// When implements [workqueue.TypedRateLimiter].
func (t alignedDelays) When(uid string) time.Duration {
	delay, since := t.TypedRateLimiter.When(uid), time.Since(t.begin)
	return (since + delay).Truncate(delay) - since
}
