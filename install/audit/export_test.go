package audit

import "time"

// Held is how many things the auditor keeps of pods: none of those that are gone.
func (a *Auditor) Held() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locator.mu.Lock()
	defer a.locator.mu.Unlock()
	a.changes.mu.Lock()
	defer a.changes.mu.Unlock()
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	return len(a.pods) + len(a.named) + len(a.homes) + a.schedule.len() + len(a.schedule.queue) + len(a.locator.wanted) +
		len(a.changes.names) + len(a.repairs.entries) + len(a.eventQueue.queue)
}

// Visit has a pod visited now.
func (a *Auditor) Visit(uid string) { a.schedule.plan(uid, time.Now()) }

// len returns how many pods are known.
func (s *schedule) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.slots)
}
