package audit

// Held is how many things the auditor keeps of pods: none of those that are gone.
func (a *Auditor) Held() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.locator.mu.Lock()
	defer a.locator.mu.Unlock()
	a.repairs.mu.Lock()
	defer a.repairs.mu.Unlock()
	n := len(a.pods) + len(a.byName) + len(a.byNetNS) + len(a.locator.pending) + a.changes.Len() +
		len(a.repairs.entries) + a.eventQueue.queue.Len()
	if a.queue != nil {
		n += a.queue.Len()
	}
	return n
}

// Retries is how many attempts the rate limiters keep of a pod: none of one that is gone.
func (a *Auditor) Retries(uid string) int {
	return a.queue.NumRequeues(uid) + a.failures.delays.NumRequeues(uid) +
		a.actions.delays.NumRequeues(uid)
}

// Visit has a pod visited now.
func (a *Auditor) Visit(uid string) { a.queue.Add(uid) }
