package audit

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// workers is how many pods are reconciled at a time.
const workers = 2

// work reconciles the pods in the queue until the context ends, and all reconciliations with it.
// The queue gives a pod to one worker at a time. A pod that is gone may still be in the queue, from
// which nothing can be removed: reconciling it does nothing.
func (a *Auditor) work(ctx context.Context, reconcile func(ctx context.Context, uid string)) {
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
				if ctx.Err() == nil { // a queue that shuts down still returns what is in it
					number := a.visits.begin()
					reconcile(ctx, uid)
					a.visits.end(number)
				}
				queue.Done(uid)
			}
		})
	}
	group.Wait()
}

// newQueue returns the queue of the UIDs of pods. Its rate limiter spaces the searches for the
// sandbox of a pod.
func newQueue(begin time.Time) workqueue.TypedRateLimitingInterface[string] {
	return workqueue.NewTypedRateLimitingQueue[string](newTogether(begin))
}

// together extends the delays of a rate limiter so that items with the same delay are due at the
// same moment, counted from a begin: one search then serves all pods that wait as long.
type together struct {
	workqueue.TypedRateLimiter[string]
	begin time.Time
}

func newTogether(begin time.Time) together {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[string](initialSearchBackoff, maxSearchBackoff)
	return together{delays, begin}
}

// When implements [workqueue.TypedRateLimiter].
func (t together) When(uid string) time.Duration {
	delay, since := t.TypedRateLimiter.When(uid), time.Since(t.begin)
	return (since + delay).Truncate(delay) - since
}
