package sandbox

// Remembered is how many sandboxes and records a finder remembers.
func Remembered(f *Finder) (sandboxes, claims int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.found), len(f.records.known)
}
