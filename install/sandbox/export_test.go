package sandbox

// Remembered returns the numbers of sandboxes and records in a finder's cache.
func Remembered(f *Finder) (sandboxes, records int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.cached), len(f.records.known)
}
