package audit

import (
	"maps"
	"slices"
	"sync"
)

// runningAudits numbers the audits, and contains the running ones. The methods are safe for
// concurrent use.
type runningAudits struct {
	mu      sync.Mutex
	begun   uint64 // number of the last audit
	running map[uint64]bool
}

// begin returns the number of a new audit.
func (r *runningAudits) begin() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[uint64]bool{}
	}
	r.begun++
	r.running[r.begun] = true
	return r.begun
}

func (r *runningAudits) end(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, number)
}

// progress returns the number of the oldest running audit and true. If no audit is running, it
// returns the number of the last audit and waiting.
func (r *runningAudits) progress(waiting bool) (audit uint64, busy bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.running) > 0 {
		return slices.Min(slices.Collect(maps.Keys(r.running))), true
	}
	return r.begun, waiting
}

// Progress returns the number of the oldest running audit and true. If no audit is running, it
// returns the number of the last audit and whether an audit is due. While a worker is stuck, the
// result does not change.
func (a *Auditor) Progress() (audit uint64, busy bool) {
	a.mu.Lock()
	queue := a.queue
	a.mu.Unlock()
	return a.running.progress(queue != nil && queue.Len() > 0)
}

// ChangeProgress returns the number of processed pod changes, and whether changes wait in the
// queue. While the processing is stuck, the number does not change.
func (a *Auditor) ChangeProgress() (processed uint64, busy bool) {
	return a.changesProcessed.Load(), a.changes.Len() > 0
}
