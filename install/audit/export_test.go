package audit

// EntryCount returns the number of entries that the auditor has for pods. Deleted pods have none.
func (a *Auditor) EntryCount() int {
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

// AttemptCount returns the number of attempts that the rate limiters have for a pod. A deleted pod
// has none.
func (a *Auditor) AttemptCount(uid string) int {
	return a.queue.NumRequeues(uid) + a.repairBackoff.delays.NumRequeues(uid) +
		a.actionBackoff.delays.NumRequeues(uid)
}

// QueueAudit schedules an immediate audit of a pod.
func (a *Auditor) QueueAudit(uid string) { a.queue.Add(uid) }
