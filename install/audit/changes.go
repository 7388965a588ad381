package audit

import "sync"

// changes are the names of pods that have changed. The methods are safe for concurrent use.
type changes struct {
	wake chan struct{} // has room for one

	mu    sync.Mutex
	names map[podName]bool
	taken uint64 // how often
}

func newChanges() *changes {
	return &changes{wake: make(chan struct{}, 1), names: map[podName]bool{}}
}

func (c *changes) note(n podName) {
	c.mu.Lock()
	c.names[n] = true
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns what was noted since the last time: one empty name if it may be all.
func (c *changes) take() []podName {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := c.names
	c.names = map[podName]bool{}
	c.taken++
	if names[podName{}] {
		return []podName{{}}
	}
	list := make([]podName, 0, len(names))
	for n := range names {
		list = append(list, n)
	}
	return list
}
