package apiservertest

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"path"
)

// The names of the node agent's objects.
const (
	Namespace = "sluice-system"
	DaemonSet = "sluice-node"
	Node      = "node-1"
)

// Account is the user name that the agent's tokens authenticate.
const Account = "system:serviceaccount:" + Namespace + ":sluice"

const (
	podsPath      = "/api/v1/namespaces/" + Namespace + "/pods"
	nodesPath     = "/api/v1/nodes/"
	nodePath      = nodesPath + Node
	daemonSetPath = "/apis/apps/v1/namespaces/" + Namespace + "/daemonsets/" + DaemonSet
)

// daemonSets controls the responses to requests about DaemonSets, and records deletions. The
// server's mutex guards it.
type daemonSets struct {
	code    int      // the status code of every response; 0 for normal responses
	deletes []string // the bodies of requests to delete the DaemonSet
}

// SetDaemonSet sets the agent's DaemonSet to the JSON object in text; apiVersion, kind, name and
// namespace are set by the server. An empty text removes the DaemonSet.
func (s *Server) SetDaemonSet(text string) {
	s.tb.Helper()
	if text == "" {
		s.change(daemonSetPath, nil)
		return
	}
	var set map[string]any
	if err := json.Unmarshal([]byte(text), &set); err != nil {
		s.tb.Fatal(err)
	}
	metadata, _ := set["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["name"], metadata["namespace"] = DaemonSet, Namespace
	set["apiVersion"], set["kind"], set["metadata"] = "apps/v1", "DaemonSet", metadata
	s.change(daemonSetPath, set)
}

// AddNode adds a node without taints.
func (s *Server) AddNode(name string, labels map[string]any) {
	metadata := map[string]any{"name": name, "labels": labels}
	s.change(nodesPath+name, map[string]any{
		"apiVersion": "v1", "kind": "Node", "metadata": metadata,
	})
}

// SetAgents adds a pod of the agent for each name, and removes the agent's other pods.
func (s *Server) SetAgents(names ...string) {
	agents := map[string]bool{}
	for _, name := range names {
		metadata := map[string]any{
			"name": name, "namespace": Namespace, "labels": map[string]any{"k8s-app": DaemonSet},
		}
		objectPath := podPath(Namespace, name)
		agents[objectPath] = true
		s.change(objectPath, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata})
	}
	s.mu.Lock()
	var others []string
	for objectPath, object := range s.objects {
		if path.Dir(objectPath) == podsPath && hasLabel(object, "k8s-app", DaemonSet) &&
			!agents[objectPath] {
			others = append(others, objectPath)
		}
	}
	s.mu.Unlock()
	for _, objectPath := range others {
		s.change(objectPath, nil)
	}
}

// RefuseDaemonSets makes the server answer all requests about DaemonSets with a status code, and
// end their watches. A code of 0 restores the normal answers.
func (s *Server) RefuseDaemonSets(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.daemonSets.code = code
	s.wake()
}

// daemonSetRefusal returns the status code with which a request about DaemonSets is refused, or 0.
func (s *Server) daemonSetRefusal(r *http.Request) int {
	if path.Base(r.URL.Path) != "daemonsets" && path.Base(path.Dir(r.URL.Path)) != "daemonsets" {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.daemonSets.code
}

// Deletes returns the bodies of the requests to delete the DaemonSet.
func (s *Server) Deletes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.daemonSets.deletes...)
}

// deleteDaemonSet records the body of the request, and marks the DaemonSet as being deleted.
func (s *Server) deleteDaemonSet(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.daemonSets.deletes = append(s.daemonSets.deletes, string(body))
	s.mu.Unlock()
	s.update(r.URL.Path, func(set map[string]any) {
		set["metadata"].(map[string]any)["deletionTimestamp"] = "2026-01-01T00:00:00Z"
	})
	write(w, http.StatusOK, s.object(r.URL.Path, nil))
}

// SetTaints sets the node's taints, given as a JSON list. conflicts is the number of further
// patches of nodes that are refused as conflicts.
func (s *Server) SetTaints(text string, conflicts int) {
	s.tb.Helper()
	var taints []any
	if err := json.Unmarshal([]byte(text), &taints); err != nil {
		s.tb.Fatal(err)
	}
	s.update(nodePath, func(node map[string]any) {
		node["spec"] = map[string]any{"taints": taints}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conflicts = conflicts
}

// Taints returns the node's taints as JSON.
func (s *Server) Taints() string {
	var node struct {
		Spec struct{ Taints json.RawMessage }
	}
	if err := json.Unmarshal(s.object(nodePath, nil), &node); err != nil {
		s.tb.Fatal(err)
	}
	return string(node.Spec.Taints)
}

// patchNode applies a merge patch to a node. It refuses the patch as a conflict if the patch
// contains a resourceVersion that differs from the node's, or if SetTaints has requested conflicts.
func (s *Server) patchNode(w http.ResponseWriter, r *http.Request) {
	var patch map[string]any
	if json.NewDecoder(r.Body).Decode(&patch) != nil {
		refuse(w, http.StatusBadRequest, "invalid patch")
		return
	}
	metadata, _ := patch["metadata"].(map[string]any)
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.objects[r.URL.Path]
	version := node["metadata"].(map[string]any)["resourceVersion"]
	requested := metadata["resourceVersion"]
	if s.conflicts > 0 || requested != nil && requested != version {
		s.conflicts = max(0, s.conflicts-1)
		refuse(w, http.StatusConflict, "the object has been modified")
		return
	}
	s.replace(r.URL.Path, mergePatch(node, patch))
	write(w, http.StatusOK, inJSON(s.objects[r.URL.Path]))
}

// mergePatch returns a copy of an object with a JSON merge patch (RFC 7386) applied.
func mergePatch(object, patch map[string]any) map[string]any {
	merged := maps.Clone(object)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		if part, ok := value.(map[string]any); ok {
			before, _ := object[key].(map[string]any)
			value = mergePatch(before, part)
		}
		merged[key] = value
		if value == nil {
			delete(merged, key)
		}
	}
	return merged
}
