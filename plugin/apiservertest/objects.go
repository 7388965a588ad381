package apiservertest

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Put adds or replaces pods and namespaces, each given as YAML or JSON. An object without
// apiVersion and kind is a pod. A pod without a namespace is in the namespace default.
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
		objectPath := "/api/v1/namespaces/" + name
		if object["kind"] == "Pod" {
			if metadata["namespace"] == nil {
				metadata["namespace"] = "default"
			}
			objectPath = podPath(metadata["namespace"].(string), name)
		}
		s.change(objectPath, object)
	}
}

// PutPod adds or replaces a pod. The object must not be changed afterwards. Other pods may share
// parts of it.
func (s *Server) PutPod(object map[string]any) {
	metadata := object["metadata"].(map[string]any)
	s.change(podPath(metadata["namespace"].(string), metadata["name"].(string)), object)
}

// DeletePod removes a pod.
func (s *Server) DeletePod(namespace, name string) { s.change(podPath(namespace, name), nil) }

func podPath(namespace, name string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + name
}

// object returns the object at a path as JSON, or nil if there is none. If change is not nil, it
// changes a copy of the object, and object returns the copy.
func (s *Server) object(objectPath string, change func(object map[string]any)) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored, ok := s.objects[objectPath]
	if !ok {
		return nil
	}
	text := inJSON(stored)
	if change != nil {
		var copied map[string]any
		if err := json.Unmarshal(text, &copied); err != nil {
			panic(err)
		}
		change(copied)
		text = inJSON(copied)
	}
	return text
}

// authorized reports whether the request has the token or a valid client certificate.
func (s *Server) authorized(r *http.Request) bool {
	if peer := r.TLS.PeerCertificates; len(peer) > 0 {
		options := x509.VerifyOptions{
			Roots: authority().pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		if _, err := peer[0].Verify(options); err == nil {
			return true
		}
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && s.accepts(token)
}

// mergePatchType is the only content type of patches that the server supports.
const mergePatchType = "application/merge-patch+json"

// answer replies as an API server does. If change is not nil, the reply contains a copy of the
// requested object that change has edited.
func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, change func(object map[string]any),
) {
	s.waitForPods(r)
	name := path.Base(r.URL.Path)
	resource := path.Base(path.Dir(r.URL.Path))
	method := r.Method
	switch text := s.object(r.URL.Path, change); {
	case !s.authorized(r):
		refuse(w, http.StatusUnauthorized, "Unauthorized")
	case s.refusesPods(r):
		refuse(w, http.StatusForbidden, `pods is forbidden: User "`+Account+`" cannot `+podVerb(r)+
			` resource "pods" in API group ""`)
	case s.daemonSetRefusal(r) != 0:
		refuse(w, s.daemonSetRefusal(r), "daemonsets.apps is refused")
	case method == http.MethodPatch && r.Header.Get("Content-Type") != mergePatchType:
		refuse(w, http.StatusUnsupportedMediaType, "the body of the request was in an unknown format")
	case method == http.MethodPost && name == "token":
		s.issueToken(w, r)
	case method == http.MethodPost && name == "events":
		s.createEvent(w, r)
	case method == http.MethodPatch && resource == "events":
		s.patchEvent(w, r)
	case text == nil && (resource == "nodes" || resource == "daemonsets"):
		notFound(w, resource, name)
	case method == http.MethodPatch && resource == "nodes":
		s.patchNode(w, r)
	case method == http.MethodDelete && resource == "daemonsets":
		s.deleteDaemonSet(w, r)
	case (method == http.MethodDelete || method == http.MethodPatch) &&
		strings.Contains(r.URL.Path, "/pods/"):
		s.changePod(w, r)
	case method != http.MethodGet:
		refuse(w, http.StatusMethodNotAllowed, "the server does not allow this method")
	case collectionKind(r) != "":
		s.answerCollection(w, r)
	case text == nil:
		notFound(w, resource, name)
	default:
		write(w, http.StatusOK, text)
	}
}

// refuse replies with a metav1.Status.
func refuse(w http.ResponseWriter, code int, message string) {
	write(w, code, newStatus(code, message, "", ""))
}

func notFound(w http.ResponseWriter, resource, name string) {
	const code = http.StatusNotFound
	write(w, code, newStatus(code, resource+` "`+name+`" not found`, resource, name))
}

// newStatus returns a metav1.Status.
func newStatus(code int, message, kind, name string) []byte {
	return inJSON(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": strings.ReplaceAll(http.StatusText(code), " ", ""),
		"code":    code,
		"details": map[string]any{"kind": kind, "name": name},
	})
}

func write(w http.ResponseWriter, code int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(text)
}

func inJSON(value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return text
}
