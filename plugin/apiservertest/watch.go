package apiservertest

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// history contains the changes of objects. The server's mutex guards it.
type history struct {
	version int
	events  []event       // sorted by version, and never changed
	oldest  int           // the oldest version from which a watch can start
	changed chan struct{} // closed and replaced with each event
}

// event is one change.
type event struct {
	version int
	path    string
	Type    string         `json:"type"`
	Object  map[string]any `json:"object"`
}

// change puts an object at a path, or removes it if object is nil, and notifies the watches.
func (s *Server) change(objectPath string, object map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replace(objectPath, object)
}

// update changes a copy of the object at a path, and stores the copy there.
func (s *Server) update(objectPath string, edit func(object map[string]any)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := maps.Clone(s.objects[objectPath])
	object["metadata"] = maps.Clone(object["metadata"].(map[string]any))
	edit(object)
	s.replace(objectPath, object)
}

// replace is like change, but the caller holds the mutex.
func (s *Server) replace(objectPath string, object map[string]any) {
	kind := "ADDED"
	before, known := s.objects[objectPath]
	if known {
		delete(s.onNode[nodeName(before)], objectPath)
	}
	switch {
	case object == nil && !known:
		return
	case object == nil:
		kind, object = "DELETED", before
		delete(s.objects, objectPath)
	case known:
		kind = "MODIFIED"
	}
	s.history.version++
	object = maps.Clone(object)
	metadata := maps.Clone(object["metadata"].(map[string]any))
	metadata["resourceVersion"] = strconv.Itoa(s.history.version)
	object["metadata"] = metadata
	if kind != "DELETED" {
		s.objects[objectPath] = object
		if name := nodeName(object); name != "" {
			if s.onNode[name] == nil {
				s.onNode[name] = map[string]bool{}
			}
			s.onNode[name][objectPath] = true
		}
	}
	s.history.events = append(s.history.events, event{s.history.version, objectPath, kind, object})
	s.wake()
}

// ForgetHistory ends all watches, and makes all earlier versions too old to watch from, as the
// compaction of etcd does.
func (s *Server) ForgetHistory() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.version++
	s.history.oldest = s.history.version
	s.wake()
}

// wake notifies the watches. The caller holds the mutex.
func (s *Server) wake() {
	close(s.history.changed)
	s.history.changed = make(chan struct{})
}

// nodeName returns the node of a pod; empty if there is none.
func nodeName(object map[string]any) string {
	spec, _ := object["spec"].(map[string]any)
	name, _ := spec["nodeName"].(string)
	return name
}

// since returns the events after a version. The caller holds the mutex.
func (h *history) since(version int) []event {
	i, _ := slices.BinarySearchFunc(h.events, version+1, func(e event, v int) int {
		return cmp.Compare(e.version, v)
	})
	return slices.Clip(h.events[i:])
}

// candidates returns the sorted paths of objects that may be in the requested collection. The
// caller holds the mutex.
func (s *Server) candidates(r *http.Request) []string {
	selector, value, _ := strings.Cut(r.URL.Query().Get("fieldSelector"), "=")
	switch objectPath := r.URL.Path + "/" + value; {
	case selector == "spec.nodeName":
		return slices.Sorted(maps.Keys(s.onNode[value]))
	case selector == "metadata.name" && s.objects[objectPath] != nil:
		return []string{objectPath}
	}
	return slices.Sorted(maps.Keys(s.objects))
}

// isInCollection reports whether the object at a path is in the requested collection.
func isInCollection(r *http.Request, objectPath string, object map[string]any) bool {
	if path.Dir(objectPath) != r.URL.Path &&
		(r.URL.Path != "/api/v1/pods" || object["kind"] != "Pod") {
		return false
	}
	query := r.URL.Query()
	metadata := object["metadata"].(map[string]any)
	switch key, value, _ := strings.Cut(query.Get("fieldSelector"), "="); {
	case key == "spec.nodeName" && nodeName(object) != value,
		key == "metadata.name" && metadata["name"] != value:
		return false
	}
	key, value, selects := strings.Cut(query.Get("labelSelector"), "=")
	return !selects || hasLabel(object, key, value)
}

func hasLabel(object map[string]any, key, value string) bool {
	labels, _ := object["metadata"].(map[string]any)["labels"].(map[string]any)
	return labels[key] == value
}

// collections maps patterns of the paths of collections to the kind of their objects.
var collections = map[string]string{
	"/api/v1/pods": "Pod", "/api/v1/namespaces": "Namespace",
	"/api/v1/namespaces/*/pods": "Pod", "/apis/apps/v1/namespaces/*/daemonsets": "DaemonSet",
}

// collectionKind returns the kind of the objects in the requested collection; empty if the request
// is for another resource.
func collectionKind(r *http.Request) string {
	for pattern, kind := range collections {
		if ok, _ := path.Match(pattern, r.URL.Path); ok {
			return kind
		}
	}
	return ""
}

func isWatch(r *http.Request) bool {
	v := r.URL.Query().Get("watch")
	return v == "true" || v == "1"
}

// answerCollection answers a request to list or to watch a collection.
func (s *Server) answerCollection(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	objects := []map[string]any{}
	for _, objectPath := range s.candidates(r) {
		if isInCollection(r, objectPath, s.objects[objectPath]) {
			objects = append(objects, s.objects[objectPath])
		}
	}
	version := s.history.version
	s.mu.Unlock()
	if isWatch(r) {
		s.watch(w, r, objects, version)
		return
	}
	objects, next := page(r, objects)
	for i := range objects { // the items of a list have no kind
		objects[i] = maps.Clone(requestedPart(r, objects[i]))
		delete(objects[i], "kind")
		delete(objects[i], "apiVersion")
	}
	write(w, http.StatusOK, inJSON(map[string]any{
		"kind": collectionKind(r) + "List", "apiVersion": "v1", "items": objects,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(version), "continue": next},
	}))
}

// page returns the requested page of a collection, and the token of the next page, which is empty
// if there is none. The token is the index of the next object.
func page(r *http.Request, objects []map[string]any) (page []map[string]any, next string) {
	query := r.URL.Query()
	from, _ := strconv.Atoi(query.Get("continue"))
	objects = objects[min(from, len(objects)):]
	limit, _ := strconv.Atoi(query.Get("limit"))
	if limit <= 0 || limit >= len(objects) {
		return objects, ""
	}
	return objects[:limit], strconv.Itoa(from + limit)
}

// bookmarkEvery is the interval of bookmarks. An API server sends one about every minute.
const bookmarkEvery = time.Minute

// clientTimeout returns a channel that receives a value after the client's timeout for a watch, and
// a function that stops the timer. The channel is nil without a timeout.
func clientTimeout(r *http.Request) (end <-chan time.Time, stop func() bool) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	if err != nil || seconds <= 0 {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	return timer.C, timer.Stop
}

// bookmark returns an object that contains only a version and annotations.
func bookmark(kind string, version int, annotations map[string]any) map[string]any {
	return map[string]any{
		"kind": kind, "apiVersion": "v1", "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(version), "annotations": annotations,
		},
	}
}

// requestedPart returns the requested part of an object: all of it, or only its metadata.
func requestedPart(r *http.Request, object map[string]any) map[string]any {
	if !strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return object
	}
	return map[string]any{
		"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
		"metadata": object["metadata"],
	}
}

// watch streams events until the client disconnects, its timeout is over, or the server ends the
// watch. objects is the collection at the given version.
func (s *Server) watch(
	w http.ResponseWriter, r *http.Request, objects []map[string]any, version int,
) {
	send := func(kind string, object map[string]any) {
		_, _ = w.Write(append(inJSON(event{Type: kind, Object: object}), '\n'))
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	if collectionKind(r) == "DaemonSet" {
		select {
		case s.Watching <- struct{}{}:
		default:
		}
	}
	since, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range objects {
			send("ADDED", object)
		}
		since, err = version, nil
		send("BOOKMARK", bookmark(collectionKind(r), version,
			map[string]any{"k8s.io/initial-events-end": "true"}))
	}
	if err != nil {
		since = version
	}
	end, stop := clientTimeout(r)
	defer stop()
	var bookmarks <-chan time.Time
	if r.URL.Query().Get("allowWatchBookmarks") == "true" {
		ticker := time.NewTicker(bookmarkEvery)
		defer ticker.Stop()
		bookmarks = ticker.C
	}
	for {
		s.mu.Lock()
		events, oldest, changed := s.history.since(since), s.history.oldest, s.history.changed
		isRefused := collectionKind(r) == "DaemonSet" && s.daemonSets.code != 0
		s.mu.Unlock()
		if since < oldest {
			expired := map[string]any{}
			if err := json.Unmarshal(newStatus(http.StatusGone, "too old resource version", "", ""),
				&expired); err != nil {
				panic(err)
			}
			expired["reason"] = "Expired"
			send("ERROR", expired)
			return
		}
		for _, e := range events {
			if isInCollection(r, e.path, e.Object) {
				send(e.Type, requestedPart(r, e.Object))
			}
			since = max(since, e.version)
		}
		if isRefused {
			return
		}
		select {
		case <-changed:
		case <-bookmarks:
			send("BOOKMARK", bookmark(collectionKind(r), since, nil))
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}
