package podcache

import (
	"bytes"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/sluice-mesh/sluice/plugin/source"
)

// A store contains the objects of a watch. It is safe for concurrent use.
type store struct {
	mu      sync.RWMutex
	objects map[name]*cachedObject
	// fetched contains objects that were requested one by one since the last list, and that the
	// watch has not reported since then. At most maxFetched objects are kept.
	fetched    map[name]*cachedObject
	watch      watchState
	reportedAt time.Time // time of the last report of watch.err
	// receivesList is set while the watch sends a list, which Replace receives at its end.
	receivesList bool
	// wasListMissing is set after a watch did not send its list. Until the API server sends a list
	// or an event, a watch does not count as established.
	wasListMissing bool
	// changed is called after each change, with the zero name if any object may have changed.
	changed func(name)
}

// A watchState is the state of a store's watch.
type watchState struct {
	// synced is set once the first list has been received.
	synced bool
	// err is the error of the last failed request since the watch was last established; nil if
	// there is none.
	err error
	// current is set while the watch is established: it runs, and its list is in the store. In
	// contrast to err, it also shows that a watch has ended and the next one has no result yet.
	current bool
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

// A name identifies an object. For a namespace, the field namespace is empty.
type name struct{ namespace, name string }

// A cachedObject is the cached form of an object. It is immutable.
type cachedObject struct {
	uid, hash, version string
	// json contains the required parts; nil if they are too large or invalid.
	json   []byte
	status PodStatus // of a pod
}

// hasUID reports whether the kubelet knows the object by the UID; see [decide.Pod.HasUID]. The
// empty UID matches every object.
func (o *cachedObject) hasUID(uid string) bool { return uid == "" || o.uid == uid || o.hash == uid }

// get returns an object with its JSON, or nil if the store does not contain the object or its JSON.
func (s *store) get(n name) *cachedObject {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if o := s.objects[n]; o != nil && o.json != nil {
		return o
	}
	return nil
}

// maxFetched is the maximum number of fetched objects that are kept. It bounds the memory to 8 MiB.
const maxFetched = 256

// keepFetched keeps an object that was requested from the API server, until the watch reports the
// object or a new list.
func (s *store) keepFetched(n name, o *cachedObject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetched == nil {
		s.fetched = map[name]*cachedObject{}
	}
	if s.fetched[n] != nil || len(s.fetched) < maxFetched {
		s.fetched[n] = o
	}
}

// getFetched returns an object that keepFetched has stored, or nil. isInterrupted reports whether
// the watch is interrupted.
func (s *store) getFetched(n name) (o *cachedObject, isInterrupted bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.fetched[n], s.watch.err != nil
}

// all returns all objects without their JSON.
func (s *store) all() []Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	items := make([]Item, 0, len(s.objects))
	for n, o := range s.objects {
		items = append(items, o.item(n))
	}
	return items
}

// count returns the number of objects.
func (s *store) count() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.objects)
}

// item returns an object without its JSON.
func (s *store) item(n name) (Item, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	o := s.objects[n]
	if o == nil {
		return Item{}, false
	}
	return o.item(n), true
}

func (o *cachedObject) item(n name) Item {
	ref := source.Ref{Namespace: n.namespace, Name: n.name, UID: o.uid}
	return Item{Ref: ref, ResourceVersion: o.version, PodStatus: o.status}
}

// watchState returns the current state of the watch.
func (s *store) watchState() watchState {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.watch
}

// reportInterval is the minimum time between reports of a lasting failure. The watch is retried
// more often.
const reportInterval = 30 * time.Second

// setWatchError records that a request has failed. It returns true if the error must be reported.
func (s *store) setWatchError(err error) (report bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	report = s.watch.err == nil || now.Sub(s.reportedAt) >= reportInterval
	if report {
		s.reportedAt = now
	}
	s.watch.err = err
	return report
}

// watchStarted records that the API server has accepted a watch. If sendsList is set, the watch is
// established only when Replace receives the list.
func (s *store) watchStarted(sendsList bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.receivesList = sendsList; !sendsList && !s.wasListMissing {
		s.watch.err, s.watch.current = nil, true
	}
}

// recordMissingList reports whether the list of the watch is missing, and records this.
func (s *store) recordMissingList() (isMissing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wasListMissing = s.wasListMissing || s.receivesList
	return s.receivesList
}

// UpdateResourceVersion implements [cache.ResourceVersionUpdater]. It is called after each event of
// a watch.
func (s *store) UpdateResourceVersion(string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wasListMissing {
		s.wasListMissing, s.watch.err, s.watch.current = false, nil, true
	}
}

// watchEnded records that a watch has ended, with or without an error.
func (s *store) watchEnded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watch.current, s.receivesList = false, false
}

// Transformer implements [cache.TransformingStore]: the objects of a streamed list are converted
// one by one.
func (s *store) Transformer() cache.TransformFunc { return trim }

// Add implements [cache.ReflectorStore].
func (s *store) Add(obj any) error {
	trimmed, err := trim(obj)
	if err != nil {
		return err
	}
	o := trimmed.(*object)
	s.mu.Lock()
	if s.objects == nil {
		s.objects = map[name]*cachedObject{}
	}
	n := name{o.Namespace, o.Name}
	s.objects[n] = o.cached
	delete(s.fetched, n)
	s.mu.Unlock()
	s.changed(n)
	return nil
}

// update replaces the JSON of an object, unless the watch has changed the object since it was read
// as old.
func (s *store) update(n name, old *cachedObject, json []byte) {
	if bytes.Equal(json, old.json) || len(json) > maxCachedBytes {
		return
	}
	updated := *old
	updated.json = json
	s.mu.Lock()
	isCurrent := s.objects[n] == old
	if isCurrent {
		s.objects[n] = &updated
	}
	s.mu.Unlock()
	if isCurrent {
		s.changed(n)
	}
}

// Update implements [cache.ReflectorStore].
func (s *store) Update(obj any) error { return s.Add(obj) }

// Delete implements [cache.ReflectorStore].
func (s *store) Delete(obj any) error {
	if o, ok := obj.(*object); ok {
		s.mu.Lock()
		n := name{o.Namespace, o.Name}
		delete(s.objects, n)
		delete(s.fetched, n)
		s.mu.Unlock()
		s.changed(n)
	}
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s *store) Replace(list []any, _ string) error {
	objects := make(map[name]*cachedObject, len(list))
	for _, obj := range list {
		trimmed, err := trim(obj)
		if err != nil {
			return err
		}
		o := trimmed.(*object)
		objects[name{o.Namespace, o.Name}] = o.cached
	}
	s.mu.Lock()
	s.objects, s.fetched, s.watch.synced = objects, nil, true
	if s.receivesList {
		s.watch.err, s.watch.current, s.receivesList, s.wasListMissing = nil, true, false, false
	}
	s.mu.Unlock()
	s.changed(name{})
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *store) Resync() error { return nil }
