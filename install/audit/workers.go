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
	for worker := range workers {
		group.Go(func() {
			for {
				uid, shutdown := queue.Get()
				if shutdown {
					return
				}
				if ctx.Err() == nil { // a queue that shuts down still returns its items
					a.running[worker].Store(a.auditsBegun.Add(1))
					audit(ctx, uid)
					a.running[worker].Store(0)
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

// Progress returns the number of the oldest running audit and true. If no audit is running, it
// returns the number of the last audit and whether an audit is due. While a worker is stuck, the
// result does not change.
func (a *Auditor) Progress() (audit uint64, busy bool) {
	for worker := range a.running {
		if n := a.running[worker].Load(); n > 0 && (audit == 0 || n < audit) {
			audit = n
		}
	}
	if audit > 0 {
		return audit, true
	}
	a.mu.Lock()
	queue := a.queue
	a.mu.Unlock()
	return a.auditsBegun.Load(), queue != nil && queue.Len() > 0
}

// ChangeProgress returns the number of processed pod changes, and whether changes wait in the
// queue. While the processing is stuck, the number does not change.
func (a *Auditor) ChangeProgress() (processed uint64, busy bool) {
	return a.changesProcessed.Load(), a.changes.Len() > 0
}
