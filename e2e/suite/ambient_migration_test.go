package suite_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// checkAmbientMigration replaces the real istio-cni in ambient mode by Sluice, and comes back. Two pods
// send requests all the time, and are not restarted.
func checkAmbientMigration(t *testing.T, tc *testCluster) {
	inIstio := []string{"--set", "profile=ambient", "--set", "global.nativeNftables=true"}
	tc.installIstioCNI(t, inIstio...)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	tc.annotated(t, "enabled", pods...)
	requests := tc.startRequests(t, pods[0], pods[1], throughZtunnel("b"))
	requests.more(t, 3)

	// ztunnel is connected to istio-cni until that is uninstalled.
	tc.mustInstallAmbient(t)
	pods = append(pods, tc.run(t, mesh.Pod(ns, "both"))...)
	requests.more(t, 3)
	tc.annotated(t, "enabled", pods...)
	tc.helmIstio(t, "uninstall", "--wait")
	tc.waitUntilAloneInChain(t)
	pods = append(pods, tc.run(t, mesh.Pod(ns, "ours"))...)
	requests.more(t, 3)
	tc.annotated(t, "enabled", pods...)
	tc.mustTalk(t, pods)

	tc.installIstioCNI(t, inIstio...)
	requests.more(t, 3)
	tc.mustUninstall(t)
	requests.more(t, 3)
	pods = append(pods, tc.run(t, mesh.Pod(ns, "theirs"))...)
	tc.annotated(t, "enabled", pods...)
	requests.end(t)
	tc.mustTalk(t, pods)
	for _, p := range pods {
		out, err := tc.inNetns(t.Context(), tc.mustSandbox(t, p), "nft", "list", "tables")
		if err != nil || strings.Contains(out, "inet sluice") || !strings.Contains(out, "istio-ambient-nat") {
			t.Errorf("the tables of %s: %s: %v", p.Name, out, err)
		}
	}
	tc.helmIstio(t, "uninstall", "--wait")
	tc.mustStopZtunnel(t)
}

// mustTalk fails the test unless each pod reaches the next through ztunnel.
func (tc *testCluster) mustTalk(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	for i, from := range pods {
		to := pods[(i+1)%len(pods)]
		ipv4, _ := addresses(to)
		tc.mustReach(t, from, url(ipv4.String(), mesh.Port), throughZtunnel(to.Name))
	}
}
