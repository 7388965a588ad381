package chaintest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

// namespace is the namespace of all pods of these tests.
const namespace = "shop"

// A pod is a sandbox on a node, with its object in the API server.
type pod struct {
	node *node
	ns   *netns.NS
	// path is the path of the namespace file.
	path          string
	id, name, uid string
	hostPort      int
	// annotations are the annotations of the object; see chain.passesAnnotations.
	annotations map[string]string
	ips         []string // set by ADD
}

// podNumber makes the names of pods unique.
var podNumber atomic.Int64

// newPod creates a sandbox, and adds its pod to the API server. podObject reads file.
func (n *node) newPod(t testing.TB, file string) *pod {
	t.Helper()
	p := n.newSandbox(t)
	object := podObject(t, file)
	metadata := object["metadata"].(map[string]any)
	metadata["namespace"], metadata["name"], metadata["uid"] = namespace, p.name, p.uid
	delete(metadata, "generateName")
	for key, value := range asMap(metadata["annotations"]) {
		p.annotations[key] = value.(string)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	n.api.Put(string(text))
	return p
}

// newSandbox creates the sandbox of a pod that the API server does not have.
func (n *node) newSandbox(t testing.TB) *pod {
	t.Helper()
	number := podNumber.Add(1)
	p := &pod{
		node: n, ns: netnstest.New(t),
		path: filepath.Join(n.state, fmt.Sprintf("cni-%d", number)),
		id:   fmt.Sprintf("%064x", number), name: fmt.Sprintf("orders-%d", number),
		uid:      fmt.Sprintf("7d1e6c2a-4b0f-4a57-9f63-%012x", number),
		hostPort: 20000 + int(number), annotations: map[string]string{},
	}
	// Use a link instead of a mount, which a killed test would leave behind. A sandbox without the
	// link is like a deleted one.
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.ns.FD()),
		p.path); err != nil {
		t.Fatal(err)
	}
	return p
}

// podObject reads a pod, as the API server returns it, from a file in the testdata of package
// decide. file is the file's name without .yaml.
func podObject(t testing.TB, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "decide", "testdata", file+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return object
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

// start starts the application and the proxy of the pod.
func (p *pod) start(t testing.TB) {
	t.Helper()
	p.node.serve(t, p.ns, application, ":8080")
	p.node.serve(t, p.ns, outbound, ":15001")
	p.node.serve(t, p.ns, inbound, ":15006")
}
