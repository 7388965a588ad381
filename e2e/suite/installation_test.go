package suite_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var installation = testGroup{name: "installation", tests: []groupTest{
	{
		"the DaemonSet is ready, Sluice's plugin is the last one of each chain, and the others are byte-identical",
		checkChain,
	},
	{"the API server accepts the manifests of every platform", checkManifests},
	{"helm test passes", checkHelmTest},
	{"one pod of the mesh reaches another through both proxies", checkMesh},
}}

func checkChain(t *testing.T, tc *testCluster) {
	eventually(t, readyTimeout, "the agents are ready", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, agent)
	})
	for _, n := range tc.Nodes() {
		before, now := pluginObjects(t, tc.chains[n.Name()]), pluginObjects(t, conflist(t, n))
		if len(now) != len(before)+1 || typeOf(t, now[len(now)-1]) != "sluice-cni" {
			t.Fatalf("chain of %s, want sluice-cni after the previous plugins: %s", n.Name(), conflist(t, n))
		}
		for i := range before {
			if !bytes.Equal(before[i], now[i]) {
				t.Errorf("plugin %d of %s is %s, want %s as before", i, n.Name(), now[i], before[i])
			}
		}
	}
}

// checkManifests uses a server-side dry run, without the custom resources of OpenShift and
// Multus.
func checkManifests(t *testing.T, tc *testCluster) {
	files, err := filepath.Glob("../../install/manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: error %v", err)
	}
	customKinds := regexp.MustCompile(
		`(?m)^kind: (SecurityContextConstraints|NetworkAttachmentDefinition)$`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known := slices.DeleteFunc(strings.Split(string(text), "\n---\n"), customKinds.MatchString)
		apply := tc.node().Command(t.Context(), "kubectl", "apply", "--dry-run=server",
			"--filename=-")
		apply.Stdin = strings.NewReader(strings.Join(known, "\n---\n"))
		out, err := apply.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "daemonset.apps/"+agent) {
			t.Errorf("kubectl apply of %s, want the DaemonSet %s in the output: error %v\n%s",
				filepath.Base(file), agent, err, out)
		}
	}
}

func checkHelmTest(t *testing.T, tc *testCluster) {
	out, err := tc.helm(t.Context(), "test", release, "--timeout", readyTimeout.String())
	if err != nil || !strings.Contains(out, "Succeeded") {
		t.Errorf("helm test, want Succeeded in the output: error %v\n%s", err, out)
	}
}

func checkMesh(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	tc.mustCapture(t, pods[0], pods[1])
	tc.mustCapture(t, pods[1], pods[0])
}
