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

// nodes is proved on clusters of several.
var nodes = part{name: "nodes", nodes: 2, proofs: []proof{
	{
		"pods on two nodes call each other by both families and by a Service, captured at both ends",
		provesTwoNodes,
	},
	{"the agent of each node serves the pods of its own, and no others", provesOwnNode},
}}

// onNode puts a pod on a node.
func onNode(n cluster.Node, pod *corev1.Pod) *corev1.Pod {
	pod.Spec.NodeName = n.Name()
	return pod
}

func provesTwoNodes(t *testing.T, w *world) {
	ns := w.newNamespace(t)
	dual := mesh.Sidecar{Env: dualStack}
	pods := w.run(t, onNode(w.Nodes()[0], mesh.Inject(mesh.Pod(ns, "a"), dual)),
		onNode(w.Nodes()[1], mesh.Inject(mesh.Pod(ns, "b"), dual)))
	if pods[0].Status.HostIP == pods[1].Status.HostIP {
		t.Fatalf("both pods are on %s", pods[0].Status.HostIP)
	}
	for from, to := range map[*corev1.Pod]*corev1.Pod{pods[0]: pods[1], pods[1]: pods[0]} {
		four, six := addresses(to)
		w.mustGo(t, from, url(four.String(), mesh.Port), path.Captured(to.Name))
		w.mustGo(t, from, url(six.String(), mesh.Port), path.Captured(to.Name))
		s := w.newService(t, service(to, corev1.ServicePort{
			Port: 80, TargetPort: intstr.FromInt(mesh.Port),
		}))
		w.mustGo(t, from, url(s.Spec.ClusterIP, 80), path.Captured(to.Name))
	}
}

func provesOwnNode(t *testing.T, w *world) {
	// A pod that cannot start is tried again, and each time counts.
	w.mustBeEmpty(t)
	ns := w.newNamespace(t)
	for i, own := range w.Nodes() {
		before := map[string]int{}
		for _, n := range w.Nodes() {
			before[n.Name()], _ = w.addTime(t, n)
		}
		pods := w.run(t, onNode(own, inMesh(ns, fmt.Sprintf("a-%d", i))),
			onNode(own, inMesh(ns, fmt.Sprintf("b-%d", i))))
		for _, n := range w.Nodes() {
			adds, _ := w.addTime(t, n)
			adds -= before[n.Name()]
			_, err := w.exec(t.Context(), w.agentOn(t, n), agent, "rules", "check", "--pod", ns+"/"+
				pods[0].Name)
			// On a busy machine the agent may not be told of each.
			if serves := n.Name() == own.Name(); serves != (adds > 0) || adds > len(pods) ||
				serves != (err == nil) {
				t.Errorf("of %d pods on %s the agent of %s was told of %d ADDs, and checks one: %v",
					len(pods), own.Name(), n.Name(), adds, err)
			}
		}
	}
}
