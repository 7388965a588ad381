package node_test

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/node"
)

func TestReferences(t *testing.T) {
	b := newTestNode(t)
	b.cache("one", "calico", "sluice-cni", "sluice-cni")
	b.cache("two", "calico", "istio-cni")
	b.put("results/plain", `{"kind":"cniCacheV1","config":"`+
		base64.StdEncoding.EncodeToString([]byte(plainBridge))+`"}`)
	for name, junk := range map[string]string{
		"empty": "", "result": `{"cniVersion":"0.4.0","ips":[]}`,
		"other":  `{"kind":"cniCacheV9","config":"e30="}`,
		"config": `{"kind":"cniCacheV1","config":"e30="}`,
		"number": `{"kind":"cniCacheV1","config":1}`,
	} {
		b.put("results/"+name, junk)
	}
	b.put("results/folder/x", "")
	got, err := node.References([]string{b.path("results"), b.path("absent")}, nobody)
	if diff := cmp.Diff(map[string]node.Use{
		"calico": {Sandboxes: 2}, "sluice-cni": {Sandboxes: 1}, "istio-cni": {Sandboxes: 1},
		"bridge": {Sandboxes: 1},
	}, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
	if _, err := node.References([]string{b.path("results/empty")}, nobody); err == nil {
		t.Error("a file was read as a directory")
	}
}

func nobody(string, string) bool { return false }

// Of whom a sandbox is counts only when that is clear; that it is there counts always.
func TestReferencesOfTheAgent(t *testing.T) {
	b := newTestNode(t)
	for what, row := range map[string]struct {
		args string
		own  int
	}{
		"the agent's":         {podArgs("istio-system", "sluice-node-x2k4n"), 1},
		"another namespace's": {podArgs("shop", "sluice-node-x2k4n"), 0},
		"said twice, differently": {
			`[["K8S_POD_NAMESPACE","shop"],["K8S_POD_NAMESPACE","istio-system"],["K8S_POD_NAME","sluice-node-x2k4n"]]`,
			0,
		},
		"said twice": {
			`[["K8S_POD_NAME","sluice-node-a"],["K8S_POD_NAME","sluice-node-a"],["K8S_POD_NAMESPACE","istio-system"]]`,
			1,
		},
		"not said":        {`[]`, 0},
		"nothing":         {`null`, 0},
		"no pairs":        {`[["K8S_POD_NAME"]]`, 0},
		"in another form": {`"K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=sluice-node-a"`, 0},
		"a number":        {`7`, 0},
	} {
		b.cacheArgs("one", row.args, "calico", "sluice-cni")
		got, err := node.References([]string{b.path("results")}, b.settings.OwnPod)
		use := node.Use{Sandboxes: 1, AgentPods: row.own}
		if diff := cmp.Diff(map[string]node.Use{"calico": use, "sluice-cni": use},
			got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got:\n%s", what, err, diff)
		}
	}
}

func TestOwnPods(t *testing.T) {
	s := newTestNode(t).settings
	for _, row := range []struct {
		what, namespace, pod string
		want                 bool
	}{
		{"one of the DaemonSet's or the job's", "istio-system", "sluice-node-x2k4n", true},
		{"one of the same name in another namespace", "shop", "sluice-node-x2k4n", false},
		{
			"one of another DaemonSet whose name begins alike", "istio-system",
			"sluice-node-exporter-x2k4n", false,
		},
		{
			"one of another DaemonSet whose name begins alike, without a dash", "istio-system",
			"sluice-nodes-x2k4n", false,
		},
		{"one that was made by hand", "istio-system", "sluice-node", false},
		{"one without a word", "istio-system", "sluice-node-", false},
		{"one of whom nothing is known", "", "", false},
	} {
		if got := s.OwnPod(row.namespace, row.pod); got != row.want {
			t.Errorf("%s: %v", row.what, got)
		}
	}
	if (node.Settings{}).OwnPod("", "-x") ||
		(node.Settings{AgentNamespace: "istio-system"}).OwnPod("istio-system", "-x") {
		t.Error("an agent without a name has pods")
	}
}

// What is in the cache may come from any runtime.
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
		if err != nil {
			t.Fatal(err)
		}
		for plugin, use := range counts {
			if plugin == "" || use.Sandboxes != 1 || use.AgentPods < 0 || use.AgentPods > 1 {
				t.Fatalf("%q: %+v", plugin, use)
			}
		}
	})
}
