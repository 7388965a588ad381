package suite_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-mesh/sluice/e2e/mesh"
)

// checkAmbientMigration replaces istio-cni in ambient mode with Sluice, and then Sluice with
// istio-cni. Meanwhile a pod continuously sends requests to another pod. The pods are not
// restarted.
func checkAmbientMigration(t *testing.T, tc *testCluster) {
	istioArgs := []string{"--set", "profile=ambient", "--set", "global.nativeNftables=true"}
	tc.installIstioCNI(t, istioArgs...)
	tc.mustRunZtunnel(t)
	ns := tc.newAmbientNamespace(t)
	pods := tc.run(t, mesh.Pod(ns, "a"), mesh.Pod(ns, "b"))
	tc.waitAnnotated(t, "enabled", pods...)
	requests := tc.startRequests(t, pods[0], pods[1], throughZtunnel("b"))
	requests.waitForMore(t, 3)

	// ztunnel stays connected to istio-cni until istio-cni is uninstalled.
	tc.mustInstallAmbient(t)
	pods = append(pods, tc.run(t, mesh.Pod(ns, "both"))...)
	requests.waitForMore(t, 3)
	tc.waitAnnotated(t, "enabled", pods...)
	tc.helmIstio(t, "uninstall", "--wait")
	tc.waitUntilAloneInChain(t)
	pods = append(pods, tc.run(t, mesh.Pod(ns, "sluice"))...)
	requests.waitForMore(t, 3)
	tc.waitAnnotated(t, "enabled", pods...)
	tc.mustReachEachOther(t, pods)

	tc.installIstioCNI(t, istioArgs...)
	requests.waitForMore(t, 3)
	tc.mustUninstall(t)
	requests.waitForMore(t, 3)
	pods = append(pods, tc.run(t, mesh.Pod(ns, "istio"))...)
	tc.waitAnnotated(t, "enabled", pods...)
	requests.end(t)
	tc.mustReachEachOther(t, pods)
	for _, p := range pods {
		out, err := tc.inNetns(t.Context(), tc.mustSandbox(t, p), "nft", "list", "tables")
		if err != nil || strings.Contains(out, "inet sluice") || !strings.Contains(out, "istio-ambient-nat") {
			t.Errorf("the tables of %s, want only istio-cni's: %s: error %v", p.Name, out, err)
		}
	}
	tc.helmIstio(t, "uninstall", "--wait")
	tc.mustStopZtunnel(t)
}

// mustReachEachOther fails the test unless each pod reaches the next one through ztunnel.
func (tc *testCluster) mustReachEachOther(t *testing.T, pods []*corev1.Pod) {
	t.Helper()
	for i, from := range pods {
		to := pods[(i+1)%len(pods)]
		ipv4, _ := addresses(to)
		tc.mustReach(t, from, url(ipv4.String(), mesh.Port), throughZtunnel(to.Name))
	}
}
