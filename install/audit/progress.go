package audit

import "time"

// Progress returns the number of the visit that has lasted longest, and whether there is one: as
// long as a worker is stuck, both stay. Where none is made though one is due, it is the number of
// the last one.
func (a *Auditor) Progress() (visit uint64, busy bool) { return a.schedule.progress(time.Now()) }

func (s *schedule) progress(now time.Time) (visit uint64, busy bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		if p.visited && (!busy || p.number < visit) {
			visit, busy = p.number, true
		}
	}
	if !busy && len(s.queue) > 0 && !s.queue[0].at.After(now) {
		return s.begun, true
	}
	return visit, busy
}

// Waiting returns how often changes of pods were taken over, and whether there are some that were
// not yet.
func (a *Auditor) Waiting() (taken uint64, busy bool) {
	a.changes.mu.Lock()
	defer a.changes.mu.Unlock()
	return a.changes.taken, len(a.changes.names) > 0
}
