package suite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

var uninstallation = testGroup{name: "uninstallation", tests: []groupTest{
	{"pods are captured during the migration from istio-cni to Sluice and back", checkMigration},
	{
		"after helm uninstall, the nodes' files are as before, and running pods stay redirected",
		checkUninstall,
	},
}}

func checkUninstall(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	pods := tc.run(t, meshPod(ns, "a"), meshPod(ns, "b"))
	tc.mustUninstall(t)
	tc.mustBeAsBefore(t)
	tc.mustCapture(t, pods[0], pods[1])
	tc.mustCapture(t, pods[1], pods[0])
	tc.remove(t, pods...)
	tc.run(t, mesh.Pod(ns, "c"))
}

// mustBeAsBefore fails the test unless the nodes' CNI configurations and plugins are as before the
// installation. Stubs that accept only DEL may replace the removed plugins.
func (tc *testCluster) mustBeAsBefore(t *testing.T) {
	t.Helper()
	now := tc.nodeFiles(t)
	for _, n := range tc.Nodes() {
		for _, plugin := range []string{"sluice-cni", "istio-cni"} {
			file := filepath.Join(pluginDir(), plugin)
			if _, remaining := now[fileOf(n, file)]; !remaining {
				continue
			}
			delete(now, fileOf(n, file))
			del := n.Command(t.Context(), "env", "CNI_COMMAND=DEL", "CNI_CONTAINERID=x",
				"CNI_NETNS=/x", "CNI_IFNAME=eth0", "CNI_PATH=/x", file)
			del.Stdin = strings.NewReader(`{"cniVersion":"1.0.0","name":"x","type":"` + plugin +
				`","prevResult":{"cniVersion":"1.0.0"}}`)
			if out, err := del.CombinedOutput(); err != nil {
				t.Errorf("%s fails on DEL: %v: %s", file, err, out)
			}
			t.Logf("%s is a stub for DEL", file)
		}
	}
	if diff := cmp.Diff(tc.initialFiles, now); diff != "" {
		t.Errorf("CNI configuration or plugins of the nodes differ (-before +now):\n%s", diff)
	}
}

// checkMigration installs istio-cni in addition to Sluice, uninstalls Sluice, and migrates back.
// The pods of each phase keep running.
func checkMigration(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	first := tc.run(t, meshPod(ns, "first"))[0]

	tc.installIstioCNI(t)
	both := tc.run(t, meshPod(ns, "both"))[0]
	tc.mustUninstall(t)
	if list := pluginObjects(t, conflist(t, tc.node())); typeOf(t, list[len(list)-1]) != "istio-cni" ||
		len(list) != len(pluginObjects(t, tc.chain()))+1 {
		t.Errorf("chain after the uninstallation of Sluice, want the initial plugins and istio-cni: %s",
			conflist(t, tc.node()))
	}
	istioPod := tc.run(t, meshPod(ns, "istio"))[0]
	tc.mustCapture(t, first, istioPod)
	tc.mustRejectReplacement(t)

	tc.mustInstall(t)
	bothAgain := tc.run(t, meshPod(ns, "both-again"))[0]
	tc.helmIstio(t, "uninstall", "--wait")
	tc.waitUntilAloneInChain(t)
	last := tc.run(t, meshPod(ns, "last"))[0]
	tc.mustCapture(t, first, both)
	tc.mustCapture(t, both, istioPod)
	tc.mustCapture(t, istioPod, bothAgain)
	tc.mustCapture(t, bothAgain, last)
	tc.mustCapture(t, last, first)
}

// installIstioCNI installs istio-cni with additional arguments of Helm.
func (tc *testCluster) installIstioCNI(t *testing.T, extra ...string) {
	t.Helper()
	tc.helmIstio(t, "install", append([]string{
		istioCNIChart(t), "--create-namespace", "--wait", "--timeout", installTimeout.String(), "--set",
		"image=" + istioCNIImage, "--set", "pullPolicy=Never", "--set", "global.tag=e2e",
	}, extra...)...)
}

// isFailureOfIstioCNI reports whether a warning is an error of istio-cni's plugin. The plugin fails
// during the uninstallation of istio-cni, because istio-cni removes the plugin's kubeconfig before
// it removes the plugin from the chain. The kubelet retries.
func isFailureOfIstioCNI(warning string) bool {
	return strings.Contains(warning, `plugin type="istio-cni"`) ||
		strings.Contains(warning, `failed to find plugin "istio-cni"`)
}

// waitUntilAloneInChain waits until istio-cni's plugin is removed from the chain. Helm does not
// wait for this: istio-cni's pod removes the plugin when the pod terminates.
func (tc *testCluster) waitUntilAloneInChain(t *testing.T) {
	t.Helper()
	eventually(t, readyTimeout, "istio-cni's plugin is removed from the chain", func(context.Context) error {
		chain := conflist(t, tc.node())
		if !lastPluginIs(t, chain, "sluice-cni") ||
			len(pluginObjects(t, chain)) != len(pluginObjects(t, tc.chain()))+1 {
			return fmt.Errorf("the chain is %s", chain)
		}
		return nil
	})
}

// mustRejectReplacement fails the test unless an upgrade of istio-cni's release to Sluice's chart
// fails without changes on the nodes. Such an upgrade would leave the nodes without a plugin for
// some time.
func (tc *testCluster) mustRejectReplacement(t *testing.T) {
	t.Helper()
	before := conflist(t, tc.node())
	if !lastPluginIs(t, before, "istio-cni") {
		t.Fatalf("istio-cni is not in the chain: %s", before)
	}
	args := append([]string{"upgrade"}, tc.chartArgs()...)
	args[1] = "istio-cni"
	if _, err := tc.helm(t.Context(), args...); err == nil ||
		!strings.Contains(err.Error(), agentNamespace+"/istio-cni-node") {
		t.Errorf("upgrade of istio-cni's release to Sluice's chart, want an error with the name of "+
			"istio-cni's DaemonSet: error %v", err)
	}
	if diff := cmp.Diff(string(before), string(conflist(t, tc.node()))); diff != "" {
		t.Errorf("chain before and after the rejected upgrade (-before +after)\n%s", diff)
	}
	eventually(t, readyTimeout, "istio-cni's agents are ready after the rejected upgrade", func(ctx context.Context) error {
		return tc.checkAgentsReady(ctx, "istio-cni-node")
	})
}

// helmIstio runs Helm for the release istio-cni.
func (tc *testCluster) helmIstio(t *testing.T, verb string, args ...string) {
	t.Helper()
	if _, err := tc.helm(t.Context(), append([]string{verb, "istio-cni"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// istioCNIChart returns the directory of istio-cni's chart in Istio's module.
func istioCNIChart(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-C", "../bench/istio",
		"-json", "istio.io/istio").Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(module.Dir, "manifests/charts/istio-cni")
}
