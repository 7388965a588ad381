package clustertest

import (
	"encoding/json"
	"io"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	faulty := s.faulty
	s.mu.Unlock()
	if faulty {
		s.ServeHTTP(w, r)
		return
	}
	s.hold(r)
	sets := "/apis/apps/v1/namespaces/" + Namespace + "/daemonsets"
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.Token():
		answer(w, http.StatusUnauthorized, map[string]any{"message": "Unauthorized"})
	case strings.HasPrefix(r.URL.Path, sets):
		s.daemonSets(w, r, r.URL.Path == sets)
	case r.URL.Path == "/api/v1/nodes/"+Node:
		s.nodes(w, r)
	case r.URL.Path == "/api/v1/namespaces/"+Namespace+"/pods":
		s.listAgents(w, r)
	case r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/pods/"):
		s.changePod(w, r)
	case strings.HasSuffix(r.URL.Path, "/events"):
		s.takeEvent(w, r)
	case r.Method == http.MethodPatch && strings.Contains(r.URL.Path, "/events/"):
		s.updateEvent(w, r)
	case s.forbidden(r):
		answer(w, http.StatusForbidden, map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": http.StatusForbidden,
			"message": `pods is forbidden: User "system:serviceaccount:` + Namespace + `:sluice" cannot ` + podVerb(r) + ` resource "pods" in API group ""`,
		})
	default:
		s.ServeHTTP(w, r)
	}
}

func (s *Server) forbidden(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.podVerbs, podVerb(r))
}

// podVerb is what a right to read pods would have to name for a request; empty if it is about
// something else.
func podVerb(r *http.Request) string {
	switch watch := r.URL.Query().Get("watch"); {
	case strings.Contains(r.URL.Path, "/pods/"):
		return "get"
	case !strings.HasSuffix(r.URL.Path, "/pods"):
		return ""
	case watch == "true", watch == "1":
		return "watch"
	}
	return "list"
}

func (s *Server) daemonSets(w http.ResponseWriter, r *http.Request, collection bool) {
	if collection && r.URL.Query().Get("watch") == "true" {
		s.watch(w, r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.code != 0:
		answer(w, s.code, map[string]any{"message": "daemonsets.apps is refused"})
	case collection:
		items := []any{}
		if s.set != nil {
			items = append(items, s.set)
		}
		answer(w, http.StatusOK, map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}, "items": items})
	case s.set == nil:
		answer(w, http.StatusNotFound, map[string]any{"message": "not found"})
	case r.Method == http.MethodDelete:
		body, _ := io.ReadAll(r.Body)
		s.deletes = append(s.deletes, string(body))
		s.set["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
		answer(w, http.StatusOK, s.set)
	default:
		answer(w, http.StatusOK, s.set)
	}
}

// watch tells each change until the client goes, or is refused.
func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case s.Watching <- struct{}{}:
	default:
	}
	for {
		s.mu.Lock()
		if s.version > since {
			event := map[string]any{"type": "MODIFIED", "object": s.set}
			if s.set == nil {
				event = map[string]any{"type": "DELETED", "object": map[string]any{"metadata": map[string]any{"name": DaemonSet}}}
			}
			_ = json.NewEncoder(w).Encode(event)
			since = s.version
		}
		news, refused := s.news, s.code != 0
		s.mu.Unlock()
		if refused {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) nodes(w http.ResponseWriter, r *http.Request) {
	var patch struct {
		Metadata struct{ ResourceVersion string }
		Spec     map[string]any
	}
	if r.Method == http.MethodPatch && json.NewDecoder(r.Body).Decode(&patch) != nil {
		answer(w, http.StatusBadRequest, map[string]any{"message": "no patch"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.Method == http.MethodPatch && s.conflicts > 0:
		s.conflicts--
		answer(w, http.StatusConflict, map[string]any{"message": "the object has been modified"})
		return
	case r.Method == http.MethodPatch:
		s.node["spec"] = patch.Spec
	}
	answer(w, http.StatusOK, s.node)
}

func (s *Server) listAgents(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	if r.URL.Query().Get("labelSelector") == "k8s-app="+DaemonSet {
		for _, name := range s.agents {
			items = append(items, map[string]any{"metadata": map[string]any{"name": name}})
		}
	}
	answer(w, http.StatusOK, map[string]any{"items": items})
}

// changePod keeps a request to delete or patch a pod, and refuses it if the pods are refused. The
// pod stays.
func (s *Server) changePod(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.podChanges = append(s.podChanges, r.Method+" "+r.URL.Path+" "+string(body))
	if s.podCode != 0 {
		answer(w, s.podCode, map[string]any{"message": "the pod has changed"})
		return
	}
	answer(w, http.StatusOK, map[string]any{})
}

func (s *Server) takeEvent(w http.ResponseWriter, r *http.Request) {
	var e Event
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		answer(w, http.StatusBadRequest, map[string]any{"message": err.Error()})
		return
	}
	s.change(func() { s.events = append(s.events, e) })
	answer(w, http.StatusCreated, map[string]any{})
}

// updateEvent changes the fields of an event that a patch has, and makes the event the last.
func (s *Server) updateEvent(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.events, func(e Event) bool { return e.Metadata.Name == path.Base(r.URL.Path) })
	switch {
	case s.eventCode != 0:
		answer(w, s.eventCode, map[string]any{"message": "the event stays"})
	case i < 0:
		answer(w, http.StatusNotFound, map[string]any{"message": "not found"})
	case json.NewDecoder(r.Body).Decode(&s.events[i]) != nil:
		answer(w, http.StatusBadRequest, map[string]any{"message": "no patch"})
	default:
		s.updates++
		e := s.events[i]
		s.events = append(slices.Delete(s.events, i, i+1), e)
		answer(w, http.StatusOK, map[string]any{})
	}
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}
