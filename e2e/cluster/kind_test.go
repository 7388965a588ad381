package cluster_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// requireKind skips the test unless E2E_PROVIDER is kind.
func requireKind(t *testing.T) {
	t.Helper()
	if os.Getenv("E2E_PROVIDER") != "kind" {
		t.Skip("E2E_PROVIDER is not kind: \"make e2e-kind\" runs this")
	}
}

// onNode returns a function that assigns a pod to a node.
func onNode(n cluster.Node) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = n.Name() }
}

func TestKind(t *testing.T) {
	requireKind(t)
	archive, before := pack(t), footprint(t)
	parent := t.TempDir()
	s := startCluster(t, cluster.StartKind, cluster.Options{
		Dir: parent, DualStack: true, DNS: true, CNIVersion: "1.1.0",
		NodeImage: os.Getenv("E2E_NODE_IMAGE"), Images: []string{archive},
	})
	nodes := s.Nodes()
	if len(nodes) != 2 || !strings.HasSuffix(nodes[0].Name(), "-control-plane") ||
		!strings.HasSuffix(nodes[1].Name(), "-worker") {
		t.Fatalf("the nodes are %v, want a control-plane and a worker", nodes)
	}
	s.run(t, "answer", onNode(nodes[0]))
	s.run(t, "other", onNode(nodes[1]))
	t.Run("pods on different nodes reach each other with both families", s.mustReachEachOther)
	t.Run("pods are reachable by the name of a service", func(t *testing.T) {
		s.serve(t)
		s.mustReach(t, "answer", "http://hello")
		s.mustReach(t, "other", "http://hello")
	})
	t.Run("the nodes' files are readable, and commands run on the nodes", s.testNodeAccess)
	t.Run("Collect saves logs, objects and rulesets", s.testCollect)
	t.Run("kubelet and containerd are restarted after a crash, and pods survive", func(t *testing.T) {
		testServiceCrash(t, s)
	})
	t.Run("pods survive an outage of the API server", func(t *testing.T) { testAPIServerOutage(t, s) })
	t.Run("the scheduler is restarted after a crash", s.testSchedulerCrash)
	t.Run("a reboot of the first node restarts its pods", func(t *testing.T) { testReboot(t, s) })
	t.Run("pods reach each other after a reboot of the second node", func(t *testing.T) {
		if err := nodes[1].Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.waitForPod(t, "other", 1)
		s.mustReachEachOther(t)
	})

	s.mustLeaveNothing(t, parent, before)
}

// mustReachEachOther checks that the pods "answer" and "other" reach each other by their addresses
// and host ports.
func (s *testCluster) mustReachEachOther(t *testing.T) {
	t.Helper()
	for from, to := range map[string]string{"answer": "other", "other": "answer"} {
		pod, err := s.clients.CoreV1().Pods("default").Get(t.Context(), to, metav1.GetOptions{})
		if err != nil || len(pod.Status.PodIPs) != 2 {
			t.Fatalf("addresses of %s: %v, error %v; want two", to, pod.Status.PodIPs, err)
		}
		s.mustReach(t, from, "http://"+pod.Status.PodIPs[0].IP+":8080")
		s.mustReach(t, from, "http://["+pod.Status.PodIPs[1].IP+"]:8080")
		s.mustReach(t, from, "http://"+pod.Status.HostIP+":18080")
	}
}

func (s *testCluster) testNodeAccess(t *testing.T) {
	for _, n := range s.Nodes() {
		conflist, err := os.ReadFile(n.Path(cluster.ConflistPath))
		if err != nil || !strings.Contains(string(conflist), `"cniVersion": "1.1.0"`) {
			t.Errorf("conflist of %s: %s, error %v; want version 1.1.0", n.Name(), conflist, err)
		}
		for _, argv := range [][]string{
			{"kubectl", "get", "node", n.Name()},
			{"crictl", "ps"},
			{"nft", "list", "ruleset"},
			{"ip", "address"},
		} {
			if out, err := n.Command(t.Context(), argv...).CombinedOutput(); err != nil {
				t.Errorf("%q on %s: %v: %s", argv, n.Name(), err, out)
			}
		}
		if name, err := n.Command(t.Context(), "hostname").Output(); err != nil ||
			strings.TrimSpace(string(name)) != n.Name() {
			t.Errorf("hostname prints %q, error %v; want %s", name, err, n.Name())
		}
	}
}

// testSchedulerCrash kills the scheduler, and then creates a pod that needs it.
func (s *testCluster) testSchedulerCrash(t *testing.T) {
	if err := s.Nodes()[0].KillService(t.Context(), cluster.Scheduler); err != nil {
		t.Fatal(err)
	}
	s.run(t, "scheduled", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
}

func (s *testCluster) testCollect(t *testing.T) {
	s.mustCollect(t, map[string]string{
		"services/*-control-plane.log": "", "services/*-worker-kubelet.log": "kubelet",
		"services/*-worker-containerd.log":                      "containerd",
		"*-control-plane/pods/kube-system_kube-apiserver-*/*/*": "",
		"*-worker/net.d/10-e2e.conflist":                        "portmap",
		"*-worker/ruleset.txt":                                  "kube-proxy", "pods.txt": "other",
	})
}
