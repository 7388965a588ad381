package audit

import (
	"maps"
	"slices"
	"sync"
)

// visits are the reconciliations that are under way. The methods are safe for concurrent use.
type visits struct {
	mu      sync.Mutex
	begun   uint64
	running map[uint64]bool // by number
}

// begin returns the number of a visit that begins.
func (v *visits) begin() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running == nil {
		v.running = map[uint64]bool{}
	}
	v.begun++
	v.running[v.begun] = true
	return v.begun
}

func (v *visits) end(number uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.running, number)
}

// progress returns the number of the visit that has lasted longest, and whether there is one.
// Without one it is the number of the last visit, and waiting is returned.
func (v *visits) progress(waiting bool) (visit uint64, busy bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.running) > 0 {
		return slices.Min(slices.Collect(maps.Keys(v.running))), true
	}
	return v.begun, waiting
}

// Progress returns the number of the visit that has lasted longest, and whether there is one: as
// long as a worker is stuck, both stay. Where none is made though one is due, it is the number of
// the last one.
func (a *Auditor) Progress() (visit uint64, busy bool) {
	a.mu.Lock()
	queue := a.queue
	a.mu.Unlock()
	return a.visits.progress(queue != nil && queue.Len() > 0)
}

// Waiting returns how often a change of a pod was taken over, and whether there are some that were
// not yet.
func (a *Auditor) Waiting() (taken uint64, busy bool) {
	return a.taken.Load(), a.changes.Len() > 0
}
