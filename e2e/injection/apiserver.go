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

// An apiServer is an API server's double: what is put into it can be read, listed and created, and
// nothing ever changes. It knows no schema, no users and no versions. The zero value is empty. It
// is safe for concurrent use.
type apiServer struct {
	mu      sync.Mutex
	objects map[key]json.RawMessage
}

// A key names an object, or a collection if the name is empty.
type key struct {
	resource  string // with its version, as "api/v1/pods"
	namespace string
	name      string
}

// keyOf reads the path of a request; false if that is none of an object or a collection.
func keyOf(request string) (key, bool) {
	words := strings.Split(strings.Trim(request, "/"), "/")
	version := 2
	if words[0] == "apis" {
		version = 3
	}
	if len(words) <= version {
		return key{}, false
	}
	k, rest := key{}, words[version:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		k.namespace, rest = rest[1], rest[2:]
	}
	k.resource = path.Join(append(words[:version:version], rest[0])...)
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

// get returns an object, nil if it is not there.
func (s *apiServer) get(k key) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k]
}

// list returns the objects of a collection, which is that of all namespaces if it names none.
func (s *apiServer) list(k key) []json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []json.RawMessage{}
	for _, o := range slices.SortedFunc(maps.Keys(s.objects), func(a, b key) int {
		return strings.Compare(path.Join(a.namespace, a.name), path.Join(b.namespace, b.name))
	}) {
		if o.resource == k.resource && (k.namespace == "" || o.namespace == k.namespace) && (k.name == "" || o.name == k.name) {
			found = append(found, s.objects[o])
		}
	}
	return found
}

// ServeHTTP answers as an API server does.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k, isObject := keyOf(r.URL.Path)
	switch {
	case r.URL.Path == "/version":
		answer(w, http.StatusOK, map[string]any{"major": "1", "minor": "36", "gitVersion": kubernetesVersion})
	case !isObject:
		answer(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": []any{}, "resources": []any{}})
	case r.Method == http.MethodPost || r.Method == http.MethodPut:
		s.store(w, r, k)
	case r.Method != http.MethodGet:
		refuse(w, http.StatusNotFound, "NotFound")
	case k.name != "":
		if object := s.get(k); object != nil {
			answer(w, http.StatusOK, object)
		} else {
			refuse(w, http.StatusNotFound, "NotFound")
		}
	case r.URL.Query().Get("watch") != "":
		watch(w, r)
	default:
		k.name = strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
		answer(w, http.StatusOK, listOf(r, s.list(k)))
	}
}

// store takes an object as it is sent.
func (s *apiServer) store(w http.ResponseWriter, r *http.Request, k key) {
	var object json.RawMessage
	var named struct{ Metadata struct{ Name string } }
	err := json.NewDecoder(r.Body).Decode(&object)
	if err == nil {
		err = json.Unmarshal(object, &named)
	}
	if err != nil {
		refuse(w, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		return
	}
	k.name = named.Metadata.Name
	s.put(k, object)
	answer(w, http.StatusCreated, object)
}

// watch tells of no change until the client has enough. A client that wants what there is by a
// watch has to ask for a list instead.
func watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		refuse(w, http.StatusUnprocessableEntity, "Invalid")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// listOf is a list without a kind, which every client reads as the one that it asks for, but for
// the one that asks for metadata.
func listOf(r *http.Request, items []json.RawMessage) map[string]any {
	list := map[string]any{"metadata": map[string]string{"resourceVersion": "1"}, "items": items}
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list["kind"], list["apiVersion"] = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	return list
}

func refuse(w http.ResponseWriter, code int, reason string) {
	answer(w, code, map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
		"message": fmt.Sprintf("the double of an API server: %s", reason),
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
