package suite_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/e2e/mesh"
	"github.com/sluice-mesh/sluice/e2e/mesh/path"
)

// nodes contains the tests of pods with sidecars that require two nodes.
var nodes = testGroup{name: "nodes", nodes: 2, tests: []groupTest{
	{
		"pods on two nodes reach each other by both address families and through a Service, and both proxies capture the requests",
		checkTwoNodes,
	},
	{"the agent of each node serves only the node's pods", checkOwnNode},
}}

// onNode assigns a pod to a node, and returns the pod.
func onNode(n cluster.Node, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = n.Name()
	return pod
}

func checkTwoNodes(t *testing.T, tc *testCluster) {
	ns := tc.newNamespace(t)
	dual := mesh.Sidecar{Env: dualStackEnv}
	pods := tc.run(t, onNode(tc.Nodes()[0], mesh.Inject(mesh.Pod(ns, "a"), dual)),
		onNode(tc.Nodes()[1], mesh.Inject(mesh.Pod(ns, "b"), dual)))
	if pods[0].Status.HostIP == pods[1].Status.HostIP {
		t.Fatalf("both pods are on %s, want different nodes", pods[0].Status.HostIP)
	}
	for from, to := range map[*corev1.Pod]*corev1.Pod{pods[0]: pods[1], pods[1]: pods[0]} {
		ipv4, ipv6 := addresses(to)
		tc.mustReach(t, from, url(ipv4.String(), mesh.Port), path.Captured(to.Name))
		tc.mustReach(t, from, url(ipv6.String(), mesh.Port), path.Captured(to.Name))
		s := tc.newService(t, service(to, corev1.ServicePort{
			Port: 80, TargetPort: intstr.FromInt(mesh.Port),
		}))
		tc.mustReach(t, from, url(s.Spec.ClusterIP, 80), path.Captured(to.Name))
	}
}

// checkOwnNode starts pods on each node, and verifies that only the agent of the pods' node counts
// their ADDs and can check their rules.
func checkOwnNode(t *testing.T, tc *testCluster) {
	// The agents would count retries of ADD for pods of earlier tests.
	tc.mustHaveNoPods(t)
	ns := tc.newNamespace(t)
	for i, own := range tc.Nodes() {
		before := map[string]int{}
		for _, n := range tc.Nodes() {
			before[n.Name()], _ = tc.addDuration(t, n)
		}
		pods := tc.run(t, onNode(own, meshPod(ns, fmt.Sprintf("a-%d", i))),
			onNode(own, meshPod(ns, fmt.Sprintf("b-%d", i))))
		for _, n := range tc.Nodes() {
			adds, _ := tc.addDuration(t, n)
			adds -= before[n.Name()]
			_, err := tc.exec(t.Context(), tc.agentOn(t, n), agent, "rules", "check", "--pod", ns+"/"+
				pods[0].Name)
			// On a busy machine, some reports of ADDs to the agent may be lost.
			if serves := n.Name() == own.Name(); serves != (adds > 0) || adds > len(pods) ||
				serves != (err == nil) {
				t.Errorf("%d pods on %s: the agent of %s counts %d ADDs, and rules check of a pod returns %v; "+
					"only the agent of %[2]s must know the pods",
					len(pods), own.Name(), n.Name(), adds, err)
			}
		}
	}
}
