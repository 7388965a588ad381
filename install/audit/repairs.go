package audit

import (
	"sync"

	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/plugin/source"
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

// pods returns the pods that have an entry.
func (r *repairs) pods() []source.Ref {
	r.mu.Lock()
	defer r.mu.Unlock()
	var pods []source.Ref
	for _, e := range r.entries {
		pods = append(pods, source.Ref{Namespace: e.Namespace, Name: e.Name, UID: e.UID})
	}
	return pods
}
