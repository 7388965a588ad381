package audit

import (
	"maps"
	"slices"
	"sync"
)

// visits numbers the visits, and contains the running ones. The methods are safe for concurrent
// use.
type visits struct {
	mu      sync.Mutex
	begun   uint64 // number of the last visit
	running map[uint64]bool
}

// begin returns the number of a new visit.
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

// progress returns the number of the oldest running visit and true, or, if no visit is running, the
// number of the last visit and waiting.
func (v *visits) progress(waiting bool) (visit uint64, busy bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.running) > 0 {
		return slices.Min(slices.Collect(maps.Keys(v.running))), true
	}
	return v.begun, waiting
}

// Progress returns the number of the oldest running visit and true, or, if no visit is running, the
// number of the last visit and whether a visit is due. While a worker is stuck, the result does not
// change.
func (a *Auditor) Progress() (visit uint64, busy bool) {
	a.mu.Lock()
	queue := a.queue
	a.mu.Unlock()
	return a.visits.progress(queue != nil && queue.Len() > 0)
}

// ChangeProgress returns the number of processed pod changes, and whether unprocessed changes
// exist. While the processing is stuck, the result does not change.
func (a *Auditor) ChangeProgress() (processed uint64, busy bool) {
	return a.changesProcessed.Load(), a.changes.Len() > 0
}
