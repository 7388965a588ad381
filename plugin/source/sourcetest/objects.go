package sourcetest

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Put adds pods and namespaces, each given as YAML or JSON, or replaces those of the same name.
// apiVersion and kind may be left out, and mean a pod then. A pod without a namespace is in
// default.
func (s *Server) Put(objects ...string) {
	s.tb.Helper()
	for _, text := range objects {
		object := map[string]any{"apiVersion": "v1", "kind": "Pod"}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			s.tb.Fatalf("%v in:\n%s", err, text)
		}
		metadata, _ := object["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		if name == "" {
			s.tb.Fatalf("no name in:\n%s", text)
		}
		at := "/api/v1/namespaces/" + name
		if object["kind"] == "Pod" {
			if metadata["namespace"] == nil {
				metadata["namespace"] = "default"
			}
			at = podPath(metadata["namespace"].(string), name)
		}
		s.change(at, object)
	}
}

// DeletePod forgets a pod.
func (s *Server) DeletePod(namespace, name string) { s.change(podPath(namespace, name), nil) }

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// object returns what the server keeps at a path, as JSON; nil if there is nothing. The change is
// made to a copy.
func (s *Server) object(at string, change func(object map[string]any)) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept, ok := s.objects[at]
	if !ok {
		return nil
	}
	text, err := json.Marshal(kept)
	if err == nil && change != nil {
		var copied map[string]any
		if err = json.Unmarshal(text, &copied); err == nil {
			change(copied)
			text, err = json.Marshal(copied)
		}
	}
	if err != nil {
		panic(err)
	}
	return text
}

// authorized reports whether the request has the token, or came with a good client certificate.
func (s *Server) authorized(r *http.Request) bool {
	if shown := r.TLS.PeerCertificates; len(shown) > 0 {
		options := x509.VerifyOptions{Roots: authority().pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if _, err := shown[0].Verify(options); err == nil {
			return true
		}
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	defer s.mu.Unlock()
	return ok && slices.Contains(append(s.more, s.token), token)
}

// answer answers as an API server does.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, change func(object map[string]any)) {
	name := path.Base(r.URL.Path)
	resource := path.Base(path.Dir(r.URL.Path))
	switch text := s.object(r.URL.Path, change); {
	case !s.authorized(r):
		write(w, http.StatusUnauthorized, statusOf(http.StatusUnauthorized, "Unauthorized", "", ""))
	case r.Method == http.MethodPost && name == "token":
		s.issueToken(w, r)
	case r.Method != http.MethodGet:
		write(w, http.StatusMethodNotAllowed, statusOf(http.StatusMethodNotAllowed, "the server does not allow this method", "", ""))
	case r.URL.Path == "/api/v1/pods", r.URL.Path == "/api/v1/namespaces":
		s.collection(w, r)
	case text == nil:
		write(w, http.StatusNotFound, statusOf(http.StatusNotFound, resource+` "`+name+`" not found`, resource, name))
	default:
		write(w, http.StatusOK, text)
	}
}

// statusOf returns a metav1.Status.
func statusOf(code int, message, kind, name string) []byte {
	text, err := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": strings.ReplaceAll(http.StatusText(code), " ", ""), "code": code,
		"details": map[string]any{"kind": kind, "name": name},
	})
	if err != nil {
		panic(err)
	}
	return text
}

func write(w http.ResponseWriter, code int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}
