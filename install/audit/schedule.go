package audit

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// A schedule says when which pod is to be visited. A pod is visited by one worker at a time; what
// is asked for meanwhile comes after. Its methods are safe for concurrent use.
type schedule struct {
	mu    sync.Mutex
	slots map[string]*slot
	queue queue
	wake  chan struct{} // has room for one
	begun uint64        // visits
}

// A slot is the next visit of one pod.
type slot struct {
	uid     string
	at      time.Time // zero if none is planned
	visited bool      // a worker is there
	dropped bool      // the pod is gone
	index   int       // in the queue; -1 if it is not in there
	number  uint64    // of the visit that a worker makes
}

func newSchedule() *schedule {
	return &schedule{slots: map[string]*slot{}, wake: make(chan struct{}, 1)}
}

// plan makes a pod be visited at a time, or earlier if that is planned already.
func (s *schedule) plan(uid string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.slots[uid]
	if p == nil {
		p = &slot{uid: uid, index: -1}
		s.slots[uid] = p
	}
	p.dropped = false
	if !p.at.IsZero() && !at.Before(p.at) {
		return
	}
	p.at = at
	s.place(p)
}

// place puts a slot where it belongs in the queue.
func (s *schedule) place(p *slot) {
	switch {
	case p.visited:
		return
	case p.index < 0:
		heap.Push(&s.queue, p)
	default:
		heap.Fix(&s.queue, p.index)
	}
	if p.index == 0 {
		s.call()
	}
}

func (s *schedule) call() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// drop forgets a pod.
func (s *schedule) drop(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.slots[uid]
	if p == nil {
		return
	}
	p.at, p.dropped = time.Time{}, true
	if p.index >= 0 {
		heap.Remove(&s.queue, p.index)
	}
	if !p.visited {
		delete(s.slots, uid)
	}
}

// done ends a visit.
func (s *schedule) done(uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.slots[uid]
	p.visited = false
	switch {
	case p.dropped:
		delete(s.slots, uid)
	case !p.at.IsZero():
		s.place(p)
	}
}

// run visits pods when it is time, until the context ends and all visits with it. Each of so many
// workers goes on from pod to pod as long as one is due, since to wake somebody takes longer than a
// visit. What is due stays in the queue until a worker is free, so that what is planned meanwhile
// is the same visit.
func (s *schedule) run(ctx context.Context, workers int, reconcile func(ctx context.Context, uid string)) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			timer := time.NewTimer(idle)
			defer timer.Stop()
			for uid := s.take(ctx, timer); uid != ""; uid = s.take(ctx, timer) {
				reconcile(ctx, uid)
				s.done(uid)
			}
		})
	}
	group.Wait()
}

// take waits for the next pod that is due and takes it from the queue. It returns "" when the
// context ends.
func (s *schedule) take(ctx context.Context, timer *time.Timer) string {
	for ctx.Err() == nil {
		uid, wait := s.next(time.Now())
		if uid != "" {
			return uid
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	return ""
}

// idle is how long nobody need look when nothing is planned.
const idle = time.Hour

// next takes the pod that is due from the queue; or it returns how long to wait for one.
func (s *schedule) next(now time.Time) (uid string, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return "", idle
	}
	p := s.queue[0]
	if wait := p.at.Sub(now); wait > 0 {
		return "", wait
	}
	heap.Pop(&s.queue)
	s.begun++
	p.at, p.visited, p.number = time.Time{}, true, s.begun
	if len(s.queue) > 0 {
		s.call() // others wait for this one
	}
	return p.uid, 0
}

// queue is a heap of slots, the next one first.
type queue []*slot

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements [heap.Interface].
func (q *queue) Push(x any) {
	p := x.(*slot)
	p.index = len(*q)
	*q = append(*q, p)
}

// Pop implements [heap.Interface].
func (q *queue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = nil
	*q, p.index = (*q)[:last], -1
	return p
}
