package audit

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/sandbox"
)

// Pauses between searches for the sandbox of a pod that was not found. It is sought at once when
// the pod changes.
const (
	firstSearch   = 250 * time.Millisecond
	longestSearch = time.Minute
	searchTime    = 30 * time.Second
	// gather is how long others are waited for that need a search too.
	gather = 5 * time.Millisecond
)

// A locator finds sandboxes: of all pods that wait for it together, since one search in /proc
// serves all.
type locator struct {
	auditor *Auditor
	wake    chan struct{} // has room for one

	mu     sync.Mutex
	wanted map[string]sandbox.Pod // by the pods' UIDs
}

func newLocator(a *Auditor) *locator {
	return &locator{auditor: a, wake: make(chan struct{}, 1), wanted: map[string]sandbox.Pod{}}
}

// request asks for the sandbox of the pod with the UID. The pod is reconciled when it is found.
func (s *locator) request(uid string, p sandbox.Pod) {
	s.mu.Lock()
	s.wanted[uid] = p
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *locator) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		timer := time.NewTimer(gather)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			s.search(ctx)
		}
	}
}

func (s *locator) search(ctx context.Context) {
	s.mu.Lock()
	wanted := s.wanted
	s.wanted = map[string]sandbox.Pod{}
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	list := make([]sandbox.Pod, 0, len(wanted))
	for _, p := range wanted {
		list = append(list, p)
	}
	found, missing := s.auditor.Find(ctx, list)
	why := make(map[string]error, len(missing))
	for _, m := range missing {
		why[m.Pod.UID] = m.Err
	}
	for uid, p := range wanted {
		if place, ok := found[p.UID]; ok {
			s.auditor.found(uid, place)
		} else {
			s.auditor.notFound(uid, why[p.UID])
		}
	}
}

// found takes a pod's sandbox, and has it visited.
func (a *Auditor) found(uid string, place sandbox.Sandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[uid]; p != nil {
		p.place, p.missing = &place, nil
		a.queue.Add(uid)
	}
}

// notFound has the sandbox sought again later.
func (a *Auditor) notFound(uid string, why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.pods[uid]; p != nil {
		p.missing = why
		a.queue.AddRateLimited(uid)
	}
}
