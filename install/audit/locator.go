package audit

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/sandbox"
)

// Retry backoff for pods whose sandbox was not found. A pod update triggers an immediate retry.
const (
	initialSearchBackoff = 250 * time.Millisecond
	maxSearchBackoff     = time.Minute
	searchTimeout        = 30 * time.Second
	// batchDelay is how long run waits after the first request, so that concurrent requests share
	// one scan of /proc.
	batchDelay = 5 * time.Millisecond
)

// A locator finds the sandboxes of pods. It batches requests because one scan of /proc can resolve
// any number of pods.
type locator struct {
	auditor *Auditor
	wake    chan struct{} // has room for one

	mu sync.Mutex
	// pending contains the pods to find by their API UIDs. Pod.UID is the UID in the kubelet, which
	// differs for static pods.
	pending map[string]sandbox.Pod
}

func newLocator(a *Auditor) *locator {
	return &locator{auditor: a, wake: make(chan struct{}, 1), pending: map[string]sandbox.Pod{}}
}

// request queues a sandbox lookup for the pod with this API UID. The pod is reconciled once its
// sandbox is found.
func (l *locator) request(uid string, p sandbox.Pod) {
	l.mu.Lock()
	l.pending[uid] = p
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *locator) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		timer := time.NewTimer(batchDelay)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			l.search(ctx)
		}
	}
}

func (l *locator) search(ctx context.Context) {
	l.mu.Lock()
	pending := l.pending
	l.pending = map[string]sandbox.Pod{}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	list := make([]sandbox.Pod, 0, len(pending))
	for _, p := range pending {
		list = append(list, p)
	}
	found, missing := l.auditor.Find(ctx, list)
	reasons := make(map[string]error, len(missing))
	for _, m := range missing {
		reasons[m.Pod.UID] = m.Err
	}
	for uid, p := range pending {
		if sb, ok := found[p.UID]; ok {
			l.auditor.onFound(uid, sb)
		} else {
			l.auditor.onNotFound(uid, reasons[p.UID])
		}
	}
}

// onFound records the sandbox of a pod and schedules an immediate reconciliation.
func (a *Auditor) onFound(uid string, sb sandbox.Sandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[uid]; p != nil {
		p.sandbox, p.lookupErr = &sb, nil
		a.queue.Add(uid)
	}
}

// onNotFound schedules a retry with exponential backoff.
func (a *Auditor) onNotFound(uid string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[uid]; p != nil {
		p.lookupErr = err
		a.queue.AddRateLimited(uid)
	}
}
