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

var leaving = part{name: "leaving", proofs: []proof{
	{"pods are captured all the way from istio-cni to us and back", provesMigration},
	{
		"after helm uninstall the nodes are as before, and running pods keep their redirect",
		provesUninstall,
	},
}}

func provesUninstall(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	pods := w.run(t, inMesh(ns, "a"), inMesh(ns, "b"))
	w.mustUninstall(t)
	w.mustBeAsBefore(t)
	w.mustCapture(t, pods[0], pods[1])
	w.mustCapture(t, pods[1], pods[0])
	w.remove(t, pods...)
	w.run(t, mesh.Pod(ns, "c"))
}

// mustBeAsBefore fails the test unless the nodes' configurations and plugins are what they were,
// but for programs instead of plugins that a runtime may still ask to remove pods: these let
// it, and do nothing.
func (w *world) mustBeAsBefore(t *testing.T) {
	t.Helper()
	now := w.nodeFiles(t)
	for _, n := range w.Nodes() {
		for _, plugin := range []string{"sluice-cni", "istio-cni"} {
			file := filepath.Join(pluginDir(), plugin)
			if _, left := now[fileOf(n, file)]; !left {
				continue
			}
			delete(now, fileOf(n, file))
			del := n.Command(t.Context(), "env", "CNI_COMMAND=DEL", "CNI_CONTAINERID=x",
				"CNI_NETNS=/x", "CNI_IFNAME=eth0", "CNI_PATH=/x", file)
			del.Stdin = strings.NewReader(`{"cniVersion":"1.0.0","name":"x","type":"` + plugin +
				`","prevResult":{"cniVersion":"1.0.0"}}`)
			if out, err := del.CombinedOutput(); err != nil {
				t.Errorf("%s is left, and pods cannot be removed: %v: %s", file, err, out)
			}
			t.Logf("%s is left, for the removal of pods", file)
		}
	}
	if diff := cmp.Diff(w.fresh, now); diff != "" {
		t.Errorf("configuration and plugins of the nodes, before the installation and now: %s",
			diff)
	}
}

// provesMigration installs the real istio-cni in addition to Sluice, leaves it alone on the node,
// and comes back; pods of each time stay.
func provesMigration(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	first := w.run(t, inMesh(ns, "first"))[0]

	w.installIstioCNI(t)
	both := w.run(t, inMesh(ns, "both"))[0]
	w.mustUninstall(t)
	if list := elements(t, conflist(t, w.node())); typeOf(t, list[len(list)-1]) != "istio-cni" ||
		len(list) != len(elements(t, w.chain()))+1 {
		t.Errorf("after our uninstallation the chain is %s", conflist(t, w.node()))
	}
	theirs := w.run(t, inMesh(ns, "theirs"))[0]
	w.mustCapture(t, first, theirs)
	w.mustRefuseToReplace(t, "istio-cni")

	w.mustInstall(t)
	beside := w.run(t, inMesh(ns, "beside"))[0]
	w.helmIstio(t, "uninstall", "--wait")
	w.whenAloneInChain(t)
	last := w.run(t, inMesh(ns, "last"))[0]
	w.mustCapture(t, first, both)
	w.mustCapture(t, both, theirs)
	w.mustCapture(t, theirs, beside)
	w.mustCapture(t, beside, last)
	w.mustCapture(t, last, first)
}

// installIstioCNI installs the real istio-cni, with more arguments of Helm.
func (w *world) installIstioCNI(t *testing.T, more ...string) {
	t.Helper()
	w.helmIstio(t, "install", append([]string{
		istioCNIChart(t), "--wait", "--timeout", installTime.String(), "--set",
		"image=" + istioCNIImage, "--set", "pullPolicy=Never", "--set", "global.tag=e2e",
	}, more...)...)
}

// isFailureOfIstioCNI reports whether a warning says that the plugin of istio-cni failed. It does
// so while istio-cni is uninstalled, which removes the plugin's kubeconfig before its element in
// the chain; the kubelet tries again.
func isFailureOfIstioCNI(warning string) bool {
	return strings.Contains(warning, `plugin type="istio-cni"`) ||
		strings.Contains(warning, `failed to find plugin "istio-cni"`)
}

// whenAloneInChain waits until our element is the only one in the chain that was added. Helm waits
// for istio-cni's DaemonSet only: its pod removes the element when it ends.
func (w *world) whenAloneInChain(t *testing.T) {
	t.Helper()
	eventually(t, readyTime, "only our element is left in the chain", func(context.Context) error {
		chain := conflist(t, w.node())
		if !hasElement(t, chain, "sluice-cni") ||
			len(elements(t, chain)) != len(elements(t, w.chain()))+1 {
			return fmt.Errorf("the chain is %s", chain)
		}
		return nil
	})
}

// mustRefuseToReplace fails the test unless our chart refuses to upgrade the release of istio-cni,
// and leaves the nodes as they are. Such an upgrade would leave them without either plugin for a
// while.
func (w *world) mustRefuseToReplace(t *testing.T, theirs string) {
	t.Helper()
	before := conflist(t, w.node())
	if !hasElement(t, before, "istio-cni") {
		t.Fatalf("istio-cni is not in the chain: %s", before)
	}
	args := append([]string{"upgrade"}, w.chartArgs()...)
	args[1] = theirs
	if _, err := w.helm(t.Context(), args...); err == nil ||
		!strings.Contains(err.Error(), agentNamespace+"/istio-cni-node") {
		t.Errorf("an upgrade of istio-cni's release to our chart is not refused: %v", err)
	}
	if diff := cmp.Diff(string(before), string(conflist(t, w.node()))); diff != "" {
		t.Errorf("the refused upgrade has changed the chain:\n%s", diff)
	}
	eventually(t, readyTime, "istio-cni's agents are ready after the refused upgrade", func(ctx context.Context) error {
		return w.agentsReady(ctx, "istio-cni-node")
	})
}

// helmIstio runs Helm for the release istio-cni.
func (w *world) helmIstio(t *testing.T, verb string, args ...string) {
	t.Helper()
	if _, err := w.helm(t.Context(), append([]string{verb, "istio-cni"}, args...)...); err != nil {
		t.Fatal(err)
	}
}

// istioCNIChart is the chart of istio-cni, in the module from which the image's programs are built.
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
