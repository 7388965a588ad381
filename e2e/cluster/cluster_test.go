package cluster_test

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
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
	s := up(t, cluster.Start, cluster.Options{
		Dir: parent, DualStack: true, DNS: true, Images: []string{archive},
	})
	node := s.Nodes()[0]
	pod, service := s.run(t, "answer", nil), s.serve(t)

	t.Run("a pod has an address of each family, and so has a service", func(t *testing.T) {
		for _, addresses := range [][]string{
			{pod.Status.PodIPs[0].IP, pod.Status.PodIPs[1].IP}, service.Spec.ClusterIPs,
		} {
			if !netip.MustParseAddr(addresses[0]).Is4() ||
				!netip.MustParseAddr(addresses[1]).Is6() {
				t.Errorf("addresses %q", addresses)
			}
		}
	})
	t.Run("it is reached by names, by its own address, and by those of the service and the node", func(t *testing.T) {
		for _, host := range []string{
			"hello.default.svc.cluster.local", "hello", service.Spec.ClusterIPs[0],
			"[" + service.Spec.ClusterIPs[1] + "]",
			"[" + pod.Status.PodIPs[1].IP + "]:8080", pod.Status.HostIP + ":18080",
		} {
			s.mustAnswer(t, "answer", "http://"+host)
		}
	})
	t.Run("it is reached from outside, through the API server", func(t *testing.T) {
		got, err := s.clients.CoreV1().Pods("default").ProxyGet("http", "answer", "8080", "/",
			nil).DoRaw(t.Context())
		if err != nil || !strings.HasPrefix(string(got), "hello ") {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("a pod may write to the node's folders for CNI, and this machine sees it", func(t *testing.T) {
		for _, folder := range []string{"/etc/cni/net.d", "/opt/cni/bin"} {
			if _, err := s.exec(t.Context(), "answer", "write", "/node"+folder+"/x"); err != nil {
				t.Error(err)
			}
			if got, err := os.ReadFile(node.Path(folder + "/x")); string(got) != "from a pod\n" {
				t.Errorf("%s: %q, %v", folder, got, err)
			}
			if err := os.Remove(node.Path(folder + "/x")); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("a pod sees the network namespaces of later ones", func(t *testing.T) {
		before, err := s.exec(t.Context(), "answer", "mounts", "/node/run/netns")
		if err != nil {
			t.Fatal(err)
		}
		s.run(t, "later", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
		if after, err := s.exec(t.Context(), "answer", "mounts", "/node/run/netns"); err != nil ||
			len(after) == 0 || after <= before {
			t.Errorf("%s namespaces before, %s after: %v", before, after, err)
		}
	})
	t.Run("a second cluster runs beside the first", func(t *testing.T) { beside(t, s, parent) })
	t.Run("what is known of it can be saved", func(t *testing.T) { collected(t, s) })
	t.Run("without an API server, pods run on", func(t *testing.T) { withoutServer(t, s) })
	t.Run("a killed kubelet and containerd come back, and pods run on", func(t *testing.T) {
		crashed(t, s)
	})
	t.Run("a reboot starts the pods anew", func(t *testing.T) { rebooted(t, s) })

	config := s.Kubeconfig()
	cgroups, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*",
		filepath.Base(filepath.Dir(config))))
	if err != nil || len(cgroups) == 0 {
		t.Errorf("cgroups while it runs: %v, %v", cgroups, err)
	}
	s.mustLeaveNothing(t, parent, before)
	if _, err := os.Stat(config); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
	for _, cgroup := range cgroups {
		if _, err := os.Stat(cgroup); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a cgroup is left: %v", err)
		}
	}
}

// beside runs another cluster, with the same addresses and another conflist.
func beside(t *testing.T, first *subject, parent string) {
	second := up(t, cluster.Start, cluster.Options{
		Name: "other", Dir: parent, CNIVersion: "1.1.0",
		FeatureGates: map[string]bool{"WatchList": true},
	})
	for s, name := range map[*subject]string{first: "node", second: "other"} {
		nodes, err := s.clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != name ||
			s.Nodes()[0].Name() != name {
			t.Errorf("nodes of %s: %v, %v", name, nodes.Items, err)
		}
	}
	conflist, err := os.ReadFile(second.Nodes()[0].Path(cluster.ConflistPath))
	if err != nil || !strings.Contains(string(conflist), `"cniVersion": "1.1.0"`) ||
		strings.Contains(string(conflist), "::/0") {
		t.Errorf("the conflist is %s, %v", conflist, err)
	}
	if _, err := second.clients.CoreV1().Pods("default").Get(t.Context(), "answer",
		metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the other has the first one's pods: %v", err)
	}
	if err := second.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := first.clients.Discovery().ServerVersion(); err != nil {
		t.Errorf("the first is gone with the second: %v", err)
	}
}

func collected(t *testing.T, s *subject) {
	s.mustHaveSaved(t, map[string]string{
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

func withoutServer(t *testing.T, s *subject) {
	node := s.Nodes()[0]
	if err := node.StopService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if version, err := s.clients.Discovery().ServerVersion(); err == nil {
		t.Errorf("a server answers: %v", version)
	}
	if err := s.Collect(filepath.Join(t.TempDir(), "saved")); err == nil {
		t.Error("what the server knows was saved without it")
	}
	if err := node.StartService(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server answers", func(context.Context) error {
		_, err := s.clients.Discovery().ServerVersion()
		return err
	})
	s.whenReady(t, "answer", 0)
}

func crashed(t *testing.T, s *subject) {
	node := s.Nodes()[0]
	for _, service := range []string{cluster.Kubelet, cluster.Containerd} {
		if err := node.KillService(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	s.run(t, "after-crash", func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
	for _, c := range s.whenReady(t, "answer", 0).Status.ContainerStatuses {
		if c.RestartCount != 0 {
			t.Errorf("the container was started %d times again", c.RestartCount)
		}
	}
}

func rebooted(t *testing.T, s *subject) {
	node := s.Nodes()[0]
	namespace := func() string {
		entries, err := os.ReadDir(node.Path("/run/netns"))
		if err != nil || len(entries) == 0 {
			t.Fatalf("%v, %v", entries, err)
		}
		return entries[0].Name()
	}
	before := namespace()
	if err := node.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.whenReady(t, "answer", 1)
	if now := namespace(); now == before {
		t.Errorf("namespace %s is still there", now)
	}
	s.mustAnswer(t, "answer", "http://hello")
}
