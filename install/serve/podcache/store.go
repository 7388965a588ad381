package podcache

import (
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-mesh/sluice/plugin/source"
)

// store is the store of a watch. It is safe for concurrent use. Without a watch it is empty.
type store struct {
	mu       sync.RWMutex
	objects  map[name]*kept
	synced   bool
	broken   error     // why there is no watch now
	reported time.Time // when that was told last
	// may be nil; called after each change, with the zero name if it may be of all
	changed func(name)
}

var _ cache.TransformingStore = (*store)(nil)

// name identifies an object; the namespace of a namespace is empty.
type name struct{ namespace, name string }

// kept is a cached object. It is immutable.
type kept struct {
	uid, hash, version string
	// json contains the required parts; nil if they are too large or invalid.
	json []byte
	life PodStatus // of a pod
}

// hasUID reports whether the object has the UID in the kubelet. The empty UID matches every object.
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

// all returns all objects without their text.
func (s *store) all() []Item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	items := make([]Item, 0, len(s.objects))
	for n, k := range s.objects {
		items = append(items, k.item(n))
	}
	return items
}

// one returns an object without its text.
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

// ready reports whether the first list has been received.
func (s *store) ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.synced
}

// trouble returns the reason why the watch is interrupted, or nil.
func (s *store) trouble() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.broken
}

// refusal returns the last error if it means that the agent has no permission to watch.
func (s *store) refusal() error {
	if err := s.trouble(); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return err
	}
	return nil
}

// quiet is the minimum time between reports of a lasting failure, which is retried more often.
const quiet = 30 * time.Second

// note records the result of the last request, and reports whether it is a failure to report.
func (s *store) note(err error) (report bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	report = err != nil && (s.broken == nil || now.Sub(s.reported) >= quiet)
	if report {
		s.reported = now
	}
	s.broken = err
	return report
}

// Transformer implements [cache.TransformingStore]: the objects of a streamed list are converted
// one by one.
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
