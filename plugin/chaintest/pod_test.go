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

// namespace is that of all pods of these tests.
const namespace = "shop"

// A pod is a sandbox on a node, and the pod that the API server has for it.
type pod struct {
	node *node
	ns   *netns.NS
	// path is that of the namespace file.
	path          string
	id, name, uid string
	hostPort      int
	// annotations are what the runtime passes, if the chain asks for them.
	annotations map[string]string
	ips         []string // known after ADD
}

// podNumber makes pods different from each other.
var podNumber atomic.Int64

// newPod makes a sandbox, and the pod of the file of package decide at the API server.
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

// newSandbox makes the sandbox of a pod that the API server does not know.
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
	// No mount, which a killed test would leave behind. Without the link the namespace is as good
	// as gone, and before it is.
	if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), p.ns.FD()),
		p.path); err != nil {
		t.Fatal(err)
	}
	return p
}

// podObject reads a pod as the API server has it.
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

// start starts the pod's containers: the application and the proxy.
func (p *pod) start(t testing.TB) {
	t.Helper()
	p.node.serve(t, p.ns, application, ":8080")
	p.node.serve(t, p.ns, outbound, ":15001")
	p.node.serve(t, p.ns, inbound, ":15006")
}
