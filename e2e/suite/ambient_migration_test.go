package suite_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// checkAmbientMigration replaces the real istio-cni in ambient mode by Sluice, and comes back. Two pods
// send requests all the time, and are not restarted.
func checkAmbientMigration(t *testing.T, w *testCluster) {
	inIstio := []string{"--set", "profile=ambient", "--set", "global.nativeNftables=true"}
	w.installIstioCNI(t, inIstio...)
	w.mustRunZtunnel(t)
	ns := w.newAmbientNamespace(t)
	pods := w.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	w.annotated(t, "enabled", pods...)
	requests := w.startRequests(t, pods[0], pods[1], throughZtunnel("b"))
	requests.more(t, 3)

	// ztunnel is connected to istio-cni until that is uninstalled.
	w.mustInstallAmbient(t)
	pods = append(pods, w.run(t, mesh.Pod(ns, "both"))...)
	requests.more(t, 3)
	w.annotated(t, "enabled", pods...)
	w.helmIstio(t, "uninstall", "--wait")
	w.waitUntilAloneInChain(t)
	pods = append(pods, w.run(t, mesh.Pod(ns, "ours"))...)
	requests.more(t, 3)
	w.annotated(t, "enabled", pods...)
	w.mustTalk(t, pods)

	w.installIstioCNI(t, inIstio...)
	requests.more(t, 3)
	w.mustUninstall(t)
	requests.more(t, 3)
	pods = append(pods, w.run(t, mesh.Pod(ns, "theirs"))...)
	w.annotated(t, "enabled", pods...)
	requests.end(t)
	w.mustTalk(t, pods)
	for _, p := range pods {
		out, err := w.inNetns(t.Context(), w.mustSandbox(t, p), "nft", "list", "tables")
		if err != nil || strings.Contains(out, "inet sluice") || !strings.Contains(out, "istio-ambient-nat") {
			t.Errorf("the tables of %s: %s: %v", p.Name, out, err)
		}
	}
	w.helmIstio(t, "uninstall", "--wait")
	w.mustStopZtunnel(t)
}

// mustTalk fails the test unless each pod reaches the next through ztunnel.
func (w *testCluster) mustTalk(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	for i, from := range pods {
		to := pods[(i+1)%len(pods)]
		four, _ := addresses(to)
		w.mustReach(t, from, url(four.String(), mesh.Port), throughZtunnel(to.Name))
	}
}
