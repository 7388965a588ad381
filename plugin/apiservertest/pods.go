package apiservertest

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// pods is the state of requests about pods. The server's mutex guards it.
type pods struct {
	changes   []string                 // requests to delete or patch pods
	code      int                      // the status code with which changes are refused; 0 for none
	forbidden []string                 // forbidden verbs
	held      map[string]chan struct{} // by verb; closed when the requests may continue
}

// PodChanges returns the requests to delete or patch pods: method, path and body. The server only
// records these requests, and does not change the pods.
func (s *Server) PodChanges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.pods.changes...)
}

// RefusePodChanges makes the server refuse requests to delete or patch pods with a status code. A
// code of 0 accepts them again.
func (s *Server) RefusePodChanges(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods.code = code
}

// changePod records a request to delete or patch a pod.
func (s *Server) changePod(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods.changes = append(s.pods.changes, r.Method+" "+r.URL.Path+" "+string(body))
	if s.pods.code != 0 {
		refuse(w, s.pods.code, "the pod has changed")
		return
	}
	write(w, http.StatusOK, []byte("{}"))
}

// ForbidPods makes the server forbid the given verbs (get, list, watch) on pods, as if the
// ClusterRole lacked them. An empty list lifts the restriction.
func (s *Server) ForbidPods(verbs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods.forbidden = verbs
}

func (s *Server) refusesPods(r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.pods.forbidden, podVerb(r))
}

// podVerb returns the verb of a request to read pods; empty for any other request.
func podVerb(r *http.Request) string {
	switch {
	case r.Method != http.MethodGet:
		return ""
	case strings.Contains(r.URL.Path, "/pods/"):
		return "get"
	case !strings.HasSuffix(r.URL.Path, "/pods"):
		return ""
	case isWatch(r):
		return "watch"
	}
	return "list"
}

// HoldPods makes the requests about pods with the verb (get, list or watch) wait until the returned
// function is called.
func (s *Server) HoldPods(verb string) (release func()) {
	hold := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pods.held == nil {
		s.pods.held = map[string]chan struct{}{}
	}
	s.pods.held[verb] = hold
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.pods.held, verb)
		s.mu.Unlock()
		close(hold)
	})
}

// waitForPods waits while requests with the verb of r are held, and r is not canceled.
func (s *Server) waitForPods(r *http.Request) {
	s.mu.Lock()
	hold := s.pods.held[podVerb(r)]
	s.mu.Unlock()
	if hold == nil {
		return
	}
	select {
	case <-hold:
	case <-r.Context().Done():
	}
}
