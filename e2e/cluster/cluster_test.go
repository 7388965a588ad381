package cluster_test

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

func TestCluster(t *testing.T) {
	archive, before := pack(t), footprint(t)
	parent := t.TempDir()
	s := startCluster(t, cluster.Start, cluster.Options{
		Dir: parent, DualStack: true, DNS: true, Images: []string{archive},
	})
	node := s.Nodes()[0]
	pod, service := s.run(t, "answer", nil), s.serve(t)

	t.Run("pods and services have an address of each family", func(t *testing.T) {
		for _, addresses := range [][]string{
			{pod.Status.PodIPs[0].IP, pod.Status.PodIPs[1].IP}, service.Spec.ClusterIPs,
		} {
			if !netip.MustParseAddr(addresses[0]).Is4() ||
				!netip.MustParseAddr(addresses[1]).Is6() {
				t.Errorf("addresses %q, want IPv4 and IPv6", addresses)
			}
		}
	})
	t.Run("the pod is reachable by name and by the addresses of pod, service and node", func(t *testing.T) {
		for _, host := range []string{
			"hello.default.svc.cluster.local", "hello", service.Spec.ClusterIPs[0],
			"[" + service.Spec.ClusterIPs[1] + "]",
			"[" + pod.Status.PodIPs[1].IP + "]:8080", pod.Status.HostIP + ":18080",
		} {
			s.mustReach(t, "answer", "http://"+host)
		}
	})
	t.Run("the pod is reachable through the API server's proxy", func(t *testing.T) {
		got, err := s.clients.CoreV1().Pods("default").ProxyGet("http", "answer", "8080", "/",
			nil).DoRaw(t.Context())
		if err != nil || !strings.HasPrefix(string(got), "hello ") {
			t.Errorf("response %q, error %v; want the greeting", got, err)
		}
	})
	t.Run("a pod can write to the node's CNI directories", func(t *testing.T) {
		for _, folder := range []string{"/etc/cni/net.d", "/opt/cni/bin"} {
			if _, err := s.exec(t.Context(), "answer", "write", "/node"+folder+"/x"); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(node.Path(folder + "/x")); string(got) != "from a pod\n" {
				t.Errorf("%s/x contains %q, error %v; want the pod's text", folder, got, err)
			}
			if err := os.Remove(node.Path(folder + "/x")); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a pod sees the network namespaces of pods that start later", func(t *testing.T) {
		countNamespaces := func() int {
			t.Helper()
			text, err := s.exec(t.Context(), "answer", "mounts", "/node/run/netns")
			if err != nil {
				t.Fatal(err)
			}
			count, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return count
		}
		before := countNamespaces()
		s.run(t, "later", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
		if after := countNamespaces(); after <= before {
			t.Errorf("the pod sees %d namespaces after the later pod has started, want more than %d",
				after, before)
		}
	})
	t.Run("a second cluster can run", func(t *testing.T) { testSecondCluster(t, s, parent) })
	t.Run("Collect saves logs, objects and rulesets", func(t *testing.T) { testCollect(t, s) })
	t.Run("pods survive an outage of the API server", func(t *testing.T) { testAPIServerOutage(t, s) })
	t.Run("kubelet and containerd are restarted after a crash, and pods survive", func(t *testing.T) {
		testServiceCrash(t, s)
	})
	t.Run("a reboot restarts the pods", func(t *testing.T) { testReboot(t, s) })

	config := s.Kubeconfig()
	cgroups, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*",
		filepath.Base(filepath.Dir(config))))
	if err != nil || len(cgroups) == 0 {
		t.Errorf("cgroups of the running cluster: %v, error %v; want at least one", cgroups, err)
	}
	s.mustLeaveNothing(t, parent, before)
	if _, err := os.Stat(config); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat of the kubeconfig after Stop: error %v, want fs.ErrNotExist", err)
	}
	for _, cgroup := range cgroups {
		if _, err := os.Stat(cgroup); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("stat of the cgroup %s after Stop: error %v, want fs.ErrNotExist", cgroup, err)
		}
	}
}

// testSecondCluster runs another cluster with the same addresses and a different conflist.
func testSecondCluster(t *testing.T, first *testCluster, parent string) {
	second := startCluster(t, cluster.Start, cluster.Options{
		Name: "other", Dir: parent, CNIVersion: "1.1.0",
		FeatureGates: map[string]bool{"WatchList": true},
	})
	for s, name := range map[*testCluster]string{first: "node", second: "other"} {
		nodes, err := s.clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != name ||
			s.Nodes()[0].Name() != name {
			t.Errorf("nodes %v, error %v; want only %s", nodes.Items, err, name)
		}
	}
	conflist, err := os.ReadFile(second.Nodes()[0].Path(cluster.ConflistPath))
	if err != nil || !strings.Contains(string(conflist), `"cniVersion": "1.1.0"`) ||
		strings.Contains(string(conflist), "::/0") {
		t.Errorf("conflist %s, error %v; want version 1.1.0 without IPv6", conflist, err)
	}
	if _, err := second.clients.CoreV1().Pods("default").Get(t.Context(), "answer",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get a pod of the first cluster from the second: error %v, want not found", err)
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := first.clients.Discovery().ServerVersion(); err != nil {
		t.Errorf("the first cluster is not available after the second was stopped: %v", err)
	}
}

func testCollect(t *testing.T, s *testCluster) {
	s.mustCollect(t, map[string]string{
		"services/kubelet.log":          "kubelet",
		"services/kube-apiserver.log":   "server",
		"services/init.log":             "",
		"events.txt":                    "answer",
		"pods.txt":                      "coredns",
		"objects.yaml":                  "podIP:",
		"node/net.d/10-e2e.conflist":    "portmap",
		"node/ruleset.txt":              "kube-proxy",
		"node/ruleset-cni-*.txt":        "inet6 fd00:244:",
		"node/processes.txt":            "containerd-shim",
		"node/pods/kube-system_*/*/*":   "CoreDNS",
		"node/containers.txt":           "answer",
		"services/containerd.log":       "msg",
		"services/kube-scheduler.log":   "",
		"services/kube-controller*.log": "",
	})
}

func testAPIServerOutage(t *testing.T, s *testCluster) {
	node := s.Nodes()[0]
	if err := node.StopService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if version, err := s.clients.Discovery().ServerVersion(); err == nil {
		t.Errorf("stopped API server: version %v, want an error", version)
	}
	if err := s.Collect(filepath.Join(t.TempDir(), "saved")); err == nil {
		t.Error("Collect without the API server: no error, want an error")
	}
	if err := node.StartService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the API server responds", func(context.Context) error {
		_, err := s.clients.Discovery().ServerVersion()
		return err
	})
	s.waitForPod(t, "answer", 0)
}

func testServiceCrash(t *testing.T, s *testCluster) {
	node := s.Nodes()[0]
	for _, service := range []string{cluster.Kubelet, cluster.Containerd} {
		if err := node.KillService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	s.run(t, "after-crash", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
	for _, c := range s.waitForPod(t, "answer", 0).Status.ContainerStatuses {
		if c.RestartCount != 0 {
			t.Errorf("container %s was restarted %d times, want 0", c.Name, c.RestartCount)
		}
	}
}

func testReboot(t *testing.T, s *testCluster) {
	node := s.Nodes()[0]
	namespace := func() string {
		entries, err := os.ReadDir(node.Path("/run/netns"))
		if err != nil || len(entries) == 0 {
			t.Fatalf("network namespaces of the node: %v, error %v; want at least one", entries, err)
		}
		return entries[0].Name()
	}
	before := namespace()
	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.waitForPod(t, "answer", 1)
	if now := namespace(); now == before {
		t.Errorf("network namespace %s still exists after the reboot", now)
	}
	s.mustReach(t, "answer", "http://hello")
}
