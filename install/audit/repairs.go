package audit

import (
	"maps"
	"slices"
	"sync"

	"github.com/sluice-mesh/sluice/install/repair"
)

// repairs is the store of repairs with a copy in memory. Its methods are safe for concurrent use.
type repairs struct {
	store repair.Store

	mu      sync.Mutex
	entries map[string]repair.Entry
}

// load reads the store. If it returns an error, it has loaded the entries that could be read.
func (r *repairs) load() error {
	entries, err := r.store.List()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries = entries
	return err
}

// of returns the entry of the pod with the UID.
func (r *repairs) of(uid string) (repair.Entry, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.entries[uid]
	return e, ok
}

// put stores an entry, in memory even if it cannot be written.
func (r *repairs) put(e repair.Entry) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries == nil {
		r.entries = map[string]repair.Entry{}
	}
	r.entries[e.UID] = e
	return r.store.Put(e)
}

// remove removes the entry of the pod with the UID, if there is one.
func (r *repairs) remove(uid string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.entries[uid]; !ok {
		return nil
	}
	delete(r.entries, uid)
	return r.store.Remove(uid)
}

// all returns the entries of all pods.
func (r *repairs) all() []repair.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.entries))
}
