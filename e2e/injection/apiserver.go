package injection

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// An apiServer is a fake API server. It supports create, update, get, list, and watches without
// events. It has no schemas, no authentication and no conflicts: a create of an existing object
// replaces the object. The zero value has no objects. It is safe for concurrent use.
type apiServer struct {
	mu      sync.Mutex
	objects map[key]json.RawMessage
}

// A key identifies an object, or a collection if the name is empty.
type key struct {
	resource  string // with group and version, such as "api/v1/pods"
	namespace string
	name      string
}

// keyOf parses the path of a request. It returns false if the path identifies neither an object nor
// a collection.
func keyOf(urlPath string) (key, bool) {
	segments := strings.Split(strings.Trim(urlPath, "/"), "/")
	versionLength := 2 // number of segments: api, version
	if segments[0] == "apis" {
		versionLength = 3 // number of segments: apis, group, version
	}
	if len(segments) <= versionLength {
		return key{}, false
	}
	k, rest := key{}, segments[versionLength:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		k.namespace, rest = rest[1], rest[2:]
	}
	k.resource = path.Join(append(segments[:versionLength:versionLength], rest[0])...)
	if len(rest) > 1 {
		k.name = rest[1]
	}
	return k, true
}

// put adds or replaces an object.
func (s *apiServer) put(k key, object json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = map[key]json.RawMessage{}
	}
	s.objects[k] = object
}

// get returns an object, or nil if it does not exist.
func (s *apiServer) get(k key) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k]
}

// list returns the objects of a collection in the order of namespace and name. An empty namespace
// or name in the key stands for all.
func (s *apiServer) list(k key) []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []json.RawMessage{}
	for _, o := range slices.SortedFunc(maps.Keys(s.objects), func(a, b key) int {
		return strings.Compare(path.Join(a.namespace, a.name), path.Join(b.namespace, b.name))
	}) {
		inNamespace := k.namespace == "" || o.namespace == k.namespace
		hasName := k.name == "" || o.name == k.name
		if o.resource == k.resource && inNamespace && hasName {
			found = append(found, s.objects[o])
		}
	}
	return found
}

// ServeHTTP implements [http.Handler]. It responds to discovery with an empty list.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, isKey := keyOf(r.URL.Path)
	switch {
	case r.URL.Path == "/version":
		respond(w, http.StatusOK, map[string]any{
			"major": "1", "minor": "36", "gitVersion": kubernetesVersion,
		})
	case !isKey:
		respond(w, http.StatusOK, map[string]any{
			"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}, "resources": []any{},
		})
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		s.store(w, r, k)
	case r.Method != http.MethodGet:
		reject(w, http.StatusNotFound, "NotFound")
	case k.name != "":
		if object := s.get(k); object != nil {
			respond(w, http.StatusOK, object)
		} else {
			reject(w, http.StatusNotFound, "NotFound")
		}
	case r.URL.Query().Get("watch") != "":
		watch(w, r)
	default:
		k.name = strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		respond(w, http.StatusOK, listOf(r, s.list(k)))
	}
}

// store stores the object in the body of a request.
func (s *apiServer) store(w http.ResponseWriter, r *http.Request, k key) {
	var object json.RawMessage
	var named struct{ Metadata struct{ Name string } }
	err := json.NewDecoder(r.Body).Decode(&object)
	if err == nil {
		err = json.Unmarshal(object, &named)
	}
	if err != nil {
		reject(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		return
	}
	k.name = named.Metadata.Name
	s.put(k, object)
	respond(w, http.StatusCreated, object)
}

// watch waits until the client disconnects, and sends no event. It rejects a client that requests
// the initial list as watch events; the client then sends a list request.
func watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		reject(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// listOf returns a list of the items. Only a list of metadata needs a kind, because clients decode
// all other lists as the kind that they requested.
func listOf(r *http.Request, items []json.RawMessage) map[string]any {
	list := map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	return list
}

// reject responds with an error status.
func reject(w http.ResponseWriter, code int, reason string) {
	respond(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
		"message": fmt.Sprintf("fake API server: %s", reason),
	})
}

// respond responds with a body as JSON.
func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
