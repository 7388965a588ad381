package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/sluice-mesh/sluice/e2e/cluster"
	"github.com/sluice-mesh/sluice/install/image"
)

const answerImage = "e2e.sluice.test/answer:1"

// pack makes an archive with an image of testdata/answer.
func pack(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "root", "answer"), "./testdata/answer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var archive bytes.Buffer
	_, err := image.Write(&archive, image.Spec{
		Ref: answerImage, Entrypoint: []string{"/answer"},
		Platforms: []image.Platform{{Architecture: runtime.GOARCH, Root: os.DirFS(filepath.Join(dir, "root"))}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "answer.tar")
	if err := os.WriteFile(file, archive.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A subject is a cluster in a test.
type subject struct {
	*cluster.Cluster
	clients kubernetes.Interface
}

func up(t *testing.T, o cluster.Options) *subject {
	t.Helper()
	o.Log = t.Output()
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	clients, err := kubernetes.NewForConfig(c.REST())
	if err != nil {
		t.Fatal(err)
	}
	return &subject{c, clients}
}

const podManifest = `
metadata: {labels: {app: answer}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: answer
    image: e2e.sluice.test/answer:1
    imagePullPolicy: Never
    args: [serve]
    ports: [{containerPort: 8080, hostPort: 18080}]
    readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
    securityContext: {privileged: true}
    volumeMounts:
    - {name: etc, mountPath: /node/etc/cni/net.d}
    - {name: opt, mountPath: /node/opt/cni/bin}
    - {name: netns, mountPath: /node/run/netns, mountPropagation: HostToContainer}
  volumes:
  - {name: etc, hostPath: {path: /etc/cni/net.d}}
  - {name: opt, hostPath: {path: /opt/cni/bin}}
  - {name: netns, hostPath: {path: /var/run/netns}}
`

const serviceManifest = `
metadata: {name: hello}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: answer}
  ports: [{port: 80, targetPort: 8080}]
`

func decode[T any](t *testing.T, manifest string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), object); err != nil {
		t.Fatal(err)
	}
	return object
}

// run makes a pod, and returns when it is ready.
func (s *subject) run(t *testing.T, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	pod := decode[corev1.Pod](t, podManifest)
	pod.Name = name
	if change != nil {
		change(pod)
	}
	if _, err := s.clients.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return s.whenReady(t, name, 0)
}

// whenReady returns a pod that was started again a number of times.
func (s *subject) whenReady(t *testing.T, name string, restarts int32) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, "pod "+name+" is ready", func(ctx context.Context) error {
		var err error
		if pod, err = s.clients.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.Ready && c.RestartCount >= restarts {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status)
	})
	return pod
}

// exec runs the pods' program in a pod, as a user of kubectl does on this machine.
func (s *subject) exec(ctx context.Context, pod string, args ...string) (string, error) {
	argv := append([]string{"kubectl", "exec", pod, "--", "/answer"}, args...)
	out, err := s.Nodes()[0].Command(ctx, argv...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func TestCluster(t *testing.T) {
	archive, before := pack(t), footprint(t)
	parent := t.TempDir()
	s := up(t, cluster.Options{Dir: parent, DualStack: true, DNS: true, Images: []string{archive}})
	node := s.Nodes()[0]
	pod := s.run(t, "answer", nil)
	service, err := s.clients.CoreV1().Services("default").Create(t.Context(), decode[corev1.Service](t, serviceManifest), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	t.Run("a pod has an address of each family, and so has a service", func(t *testing.T) {
		for _, addresses := range [][]string{{pod.Status.PodIPs[0].IP, pod.Status.PodIPs[1].IP}, service.Spec.ClusterIPs} {
			if !netip.MustParseAddr(addresses[0]).Is4() || !netip.MustParseAddr(addresses[1]).Is6() {
				t.Errorf("addresses %q", addresses)
			}
		}
	})
	t.Run("it is reached", func(t *testing.T) {
		for way, host := range map[string]string{
			"by the name of a service": "hello.default.svc.cluster.local",
			"by a short name":          "hello",
			"by a service's IPv4":      service.Spec.ClusterIPs[0],
			"by a service's IPv6":      "[" + service.Spec.ClusterIPs[1] + "]",
			"by its own IPv6":          "[" + pod.Status.PodIPs[1].IP + "]:8080",
			"by the node's port":       pod.Status.HostIP + ":18080",
		} {
			eventually(t, way, func(ctx context.Context) error {
				got, err := s.exec(ctx, "answer", "get", "http://"+host)
				if err == nil && !strings.HasPrefix(got, "hello ") {
					err = errors.New(got)
				}
				return err
			})
		}
	})
	t.Run("it is reached from outside, through the API server", func(t *testing.T) {
		got, err := s.clients.CoreV1().Pods("default").ProxyGet("http", "answer", "8080", "/", nil).DoRaw(t.Context())
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
		if after, err := s.exec(t.Context(), "answer", "mounts", "/node/run/netns"); err != nil || len(after) == 0 || after <= before {
			t.Errorf("%s namespaces before, %s after: %v", before, after, err)
		}
	})
	t.Run("a second cluster runs beside the first", func(t *testing.T) { beside(t, s, parent) })
	t.Run("what is known of it can be saved", func(t *testing.T) { collected(t, s) })
	t.Run("without an API server, pods run on", func(t *testing.T) { withoutServer(t, s) })
	t.Run("a killed kubelet and containerd come back, and pods run on", func(t *testing.T) { crashed(t, s) })
	t.Run("a reboot starts the pods anew", func(t *testing.T) { rebooted(t, s) })

	config := s.Kubeconfig()
	cgroups, err := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", filepath.Base(filepath.Dir(config))))
	if err != nil || len(cgroups) == 0 {
		t.Errorf("cgroups while it runs: %v, %v", cgroups, err)
	}
	if err := errors.Join(s.Stop(), s.Stop()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(config); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the kubeconfig is left: %v", err)
	}
	for _, cgroup := range cgroups {
		if _, err := os.Stat(cgroup); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a cgroup is left: %v", err)
		}
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	same(t, before)
}

// beside runs another cluster, with the same addresses and another conflist.
func beside(t *testing.T, first *subject, parent string) {
	second := up(t, cluster.Options{Name: "other", Dir: parent, CNIVersion: "1.1.0", FeatureGates: map[string]bool{"WatchList": true}})
	for s, name := range map[*subject]string{first: "node", second: "other"} {
		nodes, err := s.clients.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != name || s.Nodes()[0].Name() != name {
			t.Errorf("nodes of %s: %v, %v", name, nodes.Items, err)
		}
	}
	conflist, err := os.ReadFile(second.Nodes()[0].Path(cluster.ConflistPath))
	if err != nil || !strings.Contains(string(conflist), `"cniVersion": "1.1.0"`) || strings.Contains(string(conflist), "::/0") {
		t.Errorf("the conflist is %s, %v", conflist, err)
	}
	if _, err := second.clients.CoreV1().Pods("default").Get(t.Context(), "answer", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
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
	dir := filepath.Join(t.TempDir(), "saved")
	if err := s.Collect(dir); err != nil {
		t.Error(err)
	}
	for pattern, want := range map[string]string{
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
	} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(files) == 0 {
			t.Errorf("%s: %v, %v", pattern, files, err)
			continue
		}
		if content, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(content), want) {
			t.Errorf("%s does not have %q: %v", pattern, want, err)
		}
	}
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
	eventually(t, "the pod is reached", func(ctx context.Context) error {
		_, err := s.exec(ctx, "answer", "get", "http://hello")
		return err
	})
}

// eventually waits for a check to pass, for longer than that should take.
func eventually(t *testing.T, what string, check func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		case <-tick.C:
		}
	}
}
