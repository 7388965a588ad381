package node_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestReferences(t *testing.T) {
	tn := newTestNode(t)
	tn.cacheResult("one", "calico", "sluice-cni", "sluice-cni")
	tn.cacheResult("two", "calico", "istio-cni")
	tn.put("results/plain", `{"kind":"cniCacheV1","config":"`+
		base64.StdEncoding.EncodeToString([]byte(plainBridge))+`"}`)
	for name, junk := range map[string]string{
		"result": `{"cniVersion":"0.4.0","ips":[]}`,
		"other":  `{"kind":"cniCacheV9","config":"e30="}`,
		"config": `{"kind":"cniCacheV1","config":"e30="}`,
		"number": `{"kind":"cniCacheV1","config":1}`,
	} {
		tn.put("results/"+name, junk)
	}
	tn.put("results/folder/x", "")
	got, err := node.References([]string{tn.path("results"), tn.path("absent")}, noPod)
	if diff := cmp.Diff(map[string]node.ReferenceCount{
		"calico": {Sandboxes: 2}, "sluice-cni": {Sandboxes: 1}, "istio-cni": {Sandboxes: 1},
		"bridge": {Sandboxes: 1},
	}, got); diff != "" || err != nil {
		t.Errorf("error %v; counts (-want +got):\n%s", err, diff)
	}
	if _, err := node.References([]string{tn.path("results/other")}, noPod); err == nil {
		t.Error("References of a file in place of a directory: no error, want one")
	}
}

// TestNewIncompleteResultIsAnError covers a result that libcni is writing, and one that remained
// incomplete after a crash, which must not keep executables for ever.
func TestNewIncompleteResultIsAnError(t *testing.T) {
	for _, text := range []string{"", `{"kind":"cniCacheV1","config":"e3`} {
		tn := newTestNode(t)
		tn.cacheResult("one", "calico")
		tn.put("results/two", text)
		got, err := node.References([]string{tn.path("results")}, noPod)
		if err == nil || !strings.Contains(err.Error(), tn.path("results/two")) ||
			got["calico"].Sandboxes != 1 {
			t.Errorf("new result %q: counts %v, error %v; want 1 sandbox and an error", text, got, err)
		}
		old := time.Now().Add(-time.Minute)
		tn.must(os.Chtimes(tn.path("results/two"), old, old))
		if _, err := node.References([]string{tn.path("results")}, noPod); err != nil {
			t.Errorf("old result %q: error %v, want none", text, err)
		}
	}
}

func noPod(string, string) bool { return false }

// TestSandboxesOfTheAgentAreCountedSeparately checks that the pod of a sandbox is used only if it
// is unambiguous, and that the sandbox itself always counts.
func TestSandboxesOfTheAgentAreCountedSeparately(t *testing.T) {
	tn := newTestNode(t)
	for description, row := range map[string]struct {
		args      string
		agentPods int
	}{
		"a pod of the agent":         {podArgs("istio-system", "sluice-node-x2k4n"), 1},
		"a pod of another namespace": {podArgs("shop", "sluice-node-x2k4n"), 0},
		"two different namespaces": {
			`[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAMESPACE","istio-system"],["K8S_POD_NAME","sluice-node-x2k4n"]]`,
			0,
		},
		"the same name twice": {
			`[["K8S_POD_NAME","sluice-node-a"],["K8S_POD_NAME","sluice-node-a"],["K8S_POD_NAMESPACE","istio-system"]]`,
			1,
		},
		"an empty list":           {`[]`, 0},
		"null":                    {`null`, 0},
		"a field without a value": {`[["K8S_POD_NAME"]]`, 0},
		"a string":                {`"K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=sluice-node-a"`, 0},
		"a number":                {`7`, 0},
	} {
		tn.cacheResultWithArgs("one", row.args, "calico", "sluice-cni")
		got, err := node.References([]string{tn.path("results")}, tn.settings.IsAgentPod)
		count := node.ReferenceCount{Sandboxes: 1, AgentPods: row.agentPods}
		if diff := cmp.Diff(map[string]node.ReferenceCount{"calico": count, "sluice-cni": count},
			got); diff != "" || err != nil {
			t.Errorf("%s: error %v; counts (-want +got):\n%s", description, err, diff)
		}
	}
}

func TestIsAgentPod(t *testing.T) {
	s := newTestNode(t).settings
	for _, row := range []struct {
		name, namespace, pod string
		want                 bool
	}{
		{"a pod of the DaemonSet or the job", "istio-system", "sluice-node-x2k4n", true},
		{"a pod of the same name in another namespace", "shop", "sluice-node-x2k4n", false},
		{
			"a pod of another DaemonSet with the same prefix", "istio-system",
			"sluice-node-exporter-x2k4n", false,
		},
		{
			"a pod of another DaemonSet with the same prefix, without a dash", "istio-system",
			"sluice-nodes-x2k4n", false,
		},
		{"a pod that was created by hand", "istio-system", "sluice-node", false},
		{"a pod with an empty suffix", "istio-system", "sluice-node-", false},
		{"an unknown pod", "", "", false},
	} {
		if got := s.IsAgentPod(row.namespace, row.pod); got != row.want {
			t.Errorf("%s: IsAgentPod %t, want %t", row.name, got, row.want)
		}
	}
	if (node.Settings{}).IsAgentPod("", "-x") ||
		(node.Settings{AgentNamespace: "istio-system"}).IsAgentPod("istio-system", "-x") {
		t.Error("IsAgentPod is true without a namespace or a DaemonSet, want false")
	}
}

// FuzzReferences parses arbitrary files in the cache.
func FuzzReferences(f *testing.F) {
	f.Add([]byte(`{"kind":"cniCacheV1","config":"` +
		base64.StdEncoding.EncodeToString([]byte(list("a", "b"))) + `"}`))
	f.Add([]byte(`{"kind":"cniCacheV1","config":null}`))
	f.Add([]byte(`{"kind":"cniCacheV1","config":"` +
		base64.StdEncoding.EncodeToString([]byte(list("a"))) +
		`","cniArgs":` + podArgs("istio-system", "sluice-node-x2k4n") + `}`))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, "result"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		counts, err := node.References([]string{dir}, func(namespace, _ string) bool {
			return namespace == "istio-system"
		})
		if (err == nil) != json.Valid(data) {
			t.Fatalf("error %v, want one only for invalid JSON", err)
		}
		for plugin, count := range counts {
			if plugin == "" || count.Sandboxes != 1 || count.AgentPods < 0 || count.AgentPods > 1 {
				t.Fatalf("plugin %q: count %+v, want one sandbox of a named plugin", plugin, count)
			}
		}
	})
}
