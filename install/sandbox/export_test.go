package sandbox

// CacheSizes returns the numbers of sandboxes and records in a finder's cache.
func CacheSizes(f *Finder) (sandboxes, records int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.cached), len(f.records.candidates.byUID)
}
