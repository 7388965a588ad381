package audit

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/notify"
	"github.com/sluice-mesh/sluice/install/sandbox"
)

const (
	// The delay of the next search for a sandbox that was not found doubles from
	// initialSearchBackoff to maxSearchBackoff. A change of the pod triggers an immediate search,
	// unless the pod changes continually.
	initialSearchBackoff = 250 * time.Millisecond
	maxSearchBackoff     = time.Minute
	// searchTimeout is the time limit of a search.
	searchTimeout = 30 * time.Second
	// batchDelay is the delay of a search after the first request, so that concurrent requests
	// share one scan of /proc.
	batchDelay = 5 * time.Millisecond
)

// A locator finds the sandboxes of pods. It batches requests, because one scan of /proc finds the
// sandboxes of any number of pods.
type locator struct {
	auditor *Auditor
	wake    notify.Channel // a search is requested

	mu sync.Mutex
	// pending contains the pods whose sandboxes are requested, by their UIDs in the API server.
	// Pod.UID is the UID in the kubelet, which differs for static pods.
	pending map[string]sandbox.Pod
}

// request queues a search for the sandbox of the pod with the UID in the API server. The pod is
// audited once its sandbox is found.
func (l *locator) request(uid string, p sandbox.Pod) {
	l.mu.Lock()
	l.pending[uid] = p
	l.mu.Unlock()
	l.wake.Notify()
}

// run searches for the requested sandboxes until the context ends.
func (l *locator) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(batchDelay):
			l.search(ctx)
		}
	}
}

// search searches for all requested sandboxes in one call of FindSandboxes.
func (l *locator) search(ctx context.Context) {
	l.mu.Lock()
	pending := l.pending
	l.pending = map[string]sandbox.Pod{}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	found, missing := l.auditor.FindSandboxes(ctx, slices.Collect(maps.Values(pending)))
	for uid, p := range pending {
		if sb, ok := found[p]; ok {
			l.auditor.onFound(uid, sb)
		} else {
			l.auditor.onNotFound(uid, missing[p])
		}
	}
}

// onFound records the sandbox of a pod and schedules an immediate audit.
func (a *Auditor) onFound(uid string, sb sandbox.Sandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[uid]; p != nil {
		p.sandbox, p.missing = &sb, sandbox.Missing{}
		a.queue.Add(uid)
	}
}

// onNotFound records the reason, and schedules another audit with exponential backoff. That audit
// requests another search.
func (a *Auditor) onNotFound(uid string, m sandbox.Missing) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[uid]; p != nil {
		p.missing = m
		a.queue.AddRateLimited(uid)
	}
}
