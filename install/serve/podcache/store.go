package podcache

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-mesh/sluice/plugin/source"
)

// store is what a watch keeps up to date. It is safe for concurrent use. Without a watch it is
// empty.
type store struct {
	mu      sync.RWMutex
	objects map[name]*kept
	synced  bool
	broken  error      // why there is no watch now
	told    time.Time  // when that was told last
	changed func(name) // may be nil; called after each change, with the zero name if it may be of all
}

var _ cache.TransformingStore = (*store)(nil)

// name names an object; a namespace is in none.
type name struct{ namespace, name string }

// kept is what is kept of an object. It is never changed.
type kept struct {
	uid, hash, version string
	// json is what counts; nil if there is too much of it, or it is not understood.
	json []byte
	life PodStatus // of a pod
}

// hasUID reports whether the object is the one that the kubelet knows by the UID. Everything has
// the empty one.
func (k *kept) hasUID(uid string) bool { return uid == "" || k.uid == uid || k.hash == uid }

// get returns an object with its text; nil if there is none.
func (s *store) get(n name) *kept {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if k := s.objects[n]; k != nil && k.json != nil {
		return k
	}
	return nil
}

// all returns what is to be known of all objects but their text.
func (s *store) all() []Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	items := make([]Item, 0, len(s.objects))
	for n, k := range s.objects {
		items = append(items, k.item(n))
	}
	return items
}

// one returns the same of one object, if there is one.
func (s *store) one(n name) (Item, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	k := s.objects[n]
	if k == nil {
		return Item{}, false
	}
	return k.item(n), true
}

func (k *kept) item(n name) Item {
	ref := source.Ref{Namespace: n.namespace, Name: n.name, UID: k.uid}
	return Item{Ref: ref, ResourceVersion: k.version, PodStatus: k.life}
}

// ready reports whether the first list has come.
func (s *store) ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// trouble returns why the API server is not followed now; nil if it is.
func (s *store) trouble() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.broken
}

// refusal returns the API server's answer that it does not let us watch, if that was the last.
func (s *store) refusal() error {
	if err := s.trouble(); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// quiet is how long a failure that goes on is not told again. It is tried much more often.
const quiet = 30 * time.Second

// note keeps what came of the last request, and returns whether it is a failure to tell.
func (s *store) note(err error) (tell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	tell = err != nil && (s.broken == nil || now.Sub(s.told) >= quiet)
	if tell {
		s.told = now
	}
	s.broken = err
	return tell
}

// Transformer implements [cache.TransformingStore]: while a list is streamed its objects are
// trimmed one by one.
func (s *store) Transformer() cache.TransformFunc { return trim }

// Add implements [cache.ReflectorStore].
func (s *store) Add(what any) error {
	trimmed, err := trim(what)
	if err != nil {
		return err
	}
	o := trimmed.(*object)
	s.mu.Lock()
	if s.objects == nil {
		s.objects = map[name]*kept{}
	}
	n := name{o.Namespace, o.Name}
	s.objects[n] = o.kept
	s.mu.Unlock()
	s.tell(n)
	return nil
}

// Update implements [cache.ReflectorStore].
func (s *store) Update(what any) error { return s.Add(what) }

// Delete implements [cache.ReflectorStore].
func (s *store) Delete(what any) error {
	if o, ok := what.(*object); ok {
		s.mu.Lock()
		n := name{o.Namespace, o.Name}
		delete(s.objects, n)
		s.mu.Unlock()
		s.tell(n)
	}
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s *store) Replace(list []any, _ string) error {
	objects := make(map[name]*kept, len(list))
	for _, what := range list {
		trimmed, err := trim(what)
		if err != nil {
			return err
		}
		o := trimmed.(*object)
		objects[name{o.Namespace, o.Name}] = o.kept
	}
	s.mu.Lock()
	s.objects, s.synced = objects, true
	s.mu.Unlock()
	s.tell(name{})
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *store) Resync() error { return nil }

func (s *store) tell(n name) {
	if s.changed != nil {
		s.changed(n)
	}
}
