package cluster_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// mustBeForKind skips the test, which takes minutes, when kind is not what this run of the tests is
// for.
func mustBeForKind(t *testing.T) {
	t.Helper()
	if os.Getenv("E2E_PROVIDER") != "kind" {
		t.Skip("E2E_PROVIDER is not kind: \"make e2e-kind\" runs this")
	}
}

// on puts a pod on a node.
func on(n cluster.Node) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeName = n.Name() }
}

func TestKind(t *testing.T) {
	mustBeForKind(t)
	archive, before := pack(t), footprint(t)
	parent := t.TempDir()
	s := up(t, cluster.StartKind, cluster.Options{
		Dir: parent, DualStack: true, DNS: true, CNIVersion: "1.1.0",
		NodeImage: os.Getenv("E2E_NODE_IMAGE"), Images: []string{archive},
	})
	nodes := s.Nodes()
	if len(nodes) != 2 || !strings.HasSuffix(nodes[0].Name(), "-control-plane") ||
		!strings.HasSuffix(nodes[1].Name(), "-worker") {
		t.Fatalf("the nodes are %v", nodes)
	}
	s.run(t, "answer", on(nodes[0]))
	s.run(t, "other", on(nodes[1]))
	t.Run("pods on different nodes reach each other, by both families", s.reachEachOther)
	t.Run("a service leads to them by its name", func(t *testing.T) {
		s.serve(t)
		s.mustAnswer(t, "answer", "http://hello")
		s.mustAnswer(t, "other", "http://hello")
	})
	t.Run("this machine sees the nodes' files, and runs commands there", s.seen)
	t.Run("what is known of it can be saved", s.collectedKind)
	t.Run("a killed kubelet and containerd come back, and pods run on", func(t *testing.T) {
		crashed(t, s)
	})
	t.Run("without an API server, pods run on", func(t *testing.T) { withoutServer(t, s) })
	t.Run("a killed scheduler comes back", s.schedulerKilled)
	t.Run("a reboot of the first node starts its pods anew", func(t *testing.T) { rebooted(t, s) })
	t.Run("after a reboot of the second, too, pods reach each other", func(t *testing.T) {
		if err := nodes[1].Reboot(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.whenReady(t, "other", 1)
		s.reachEachOther(t)
	})

	s.mustLeaveNothing(t, parent, before)
}

func (s *subject) reachEachOther(t *testing.T) {
	t.Helper()
	for from, to := range map[string]string{"answer": "other", "other": "answer"} {
		pod, err := s.clients.CoreV1().Pods("default").Get(t.Context(), to, metav1.GetOptions{})
		if err != nil || len(pod.Status.PodIPs) != 2 {
			t.Fatalf("addresses %v, %v", pod.Status.PodIPs, err)
		}
		s.mustAnswer(t, from, "http://"+pod.Status.PodIPs[0].IP+":8080")
		s.mustAnswer(t, from, "http://["+pod.Status.PodIPs[1].IP+"]:8080")
		s.mustAnswer(t, from, "http://"+pod.Status.HostIP+":18080")
	}
}

func (s *subject) seen(t *testing.T) {
	for _, n := range s.Nodes() {
		conflist, err := os.ReadFile(n.Path(cluster.ConflistPath))
		if err != nil || !strings.Contains(string(conflist), `"cniVersion": "1.1.0"`) {
			t.Errorf("the conflist of %s is %s, %v", n.Name(), conflist, err)
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
			t.Errorf("a command is on %s, not on %s: %v", name, n.Name(), err)
		}
	}
}

// schedulerKilled makes a pod that only a scheduler puts on a node.
func (s *subject) schedulerKilled(t *testing.T) {
	if err := s.Nodes()[0].KillService(t.Context(), cluster.Scheduler); err != nil {
		t.Fatal(err)
	}
	s.run(t, "scheduled", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
}

func (s *subject) collectedKind(t *testing.T) {
	s.mustHaveSaved(t, map[string]string{
		"services/*-control-plane.log": "", "services/*-worker-kubelet.log": "kubelet",
		"services/*-worker-containerd.log":                      "containerd",
		"*-control-plane/pods/kube-system_kube-apiserver-*/*/*": "",
		"*-worker/net.d/10-e2e.conflist":                        "portmap",
		"*-worker/ruleset.txt":                                  "kube-proxy", "pods.txt": "other",
	})
}
