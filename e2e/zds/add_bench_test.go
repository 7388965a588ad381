package zds_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/agent/observe/observetest"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// maxBenchmarkPods bounds the iterations, because each iteration enrolls another pod.
const maxBenchmarkPods = 200

// BenchmarkADD measures the CNI ADD of a pod in ambient mode, from the plugin's request until the
// agent's answer, with Sluice's agent and with the real istio-cni. floor is the lower bound: only
// the message to ztunnel and its acknowledgement. The test's ztunnel acknowledges immediately.
func BenchmarkADD(b *testing.B) {
	for _, c := range []struct {
		name  string
		start func(b *testing.B, pods []pod) agent
	}{
		{"floor", func(b *testing.B, _ []pod) agent { return startSluice(b, pod{name: "kept"}) }},
		{"sluice-node", startNode},
		{"install-cni", func(b *testing.B, pods []pod) agent {
			return startIstio(b, installCNI(b), pod{name: "kept"}, pods)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			if b.N > maxBenchmarkPods {
				b.Fatalf("%d iterations: use -benchtime 100x, at most %dx", b.N, maxBenchmarkPods)
			}
			pods := make([]pod, b.N)
			for i := range pods {
				pods[i] = pod{fmt.Sprintf("p%d", i), netnstest.New(b)}
			}
			a := c.start(b, pods)
			z := ztunneltest.Start(b, a.socket(), nil)
			z.Wait(b, "snapshot")
			b.ResetTimer()
			for _, p := range pods {
				if err := a.add(p); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			if n := len(z.Pods()); n != b.N {
				b.Errorf("ztunnel has %d pods, want %d", n, b.N)
			}
		})
	}
}

// runNode is a script that starts sluice-node with its credentials at the path where the kubelet
// mounts them.
const runNode = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
account=/var/run/secrets/kubernetes.io/serviceaccount
mkdir -p $account
cp "$DIR"/identity/token "$DIR"/identity/ca.crt $account
exec "$PROGRAM" run`

// A node is a running sluice-node with its directories.
type node struct {
	dir string
}

// startNode starts sluice-node with an API server that has the pods.
func startNode(b *testing.B, pods []pod) agent {
	dir, err := os.MkdirTemp("", "add") // paths of sockets must be short
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	n := node{dir}
	api := apiservertest.StartForAgent(b)
	api.Put(`{kind: Namespace, metadata: {name: app, labels: {istio.io/dataplane-mode: ambient}}}`)
	for _, p := range pods {
		api.Put(fmt.Sprintf(`{metadata: {name: %s, namespace: app, uid: %q},
			spec: {nodeName: %s, serviceAccountName: sa-%[1]s}}`, p.name, p.uid(), apiservertest.Node))
	}
	for name, content := range map[string]string{
		"conf/10-net.conflist": `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge"}]}`,
		"image/sluice-cni":     "the plugin", "image/noop": "does nothing",
		"bin/x": "", "run/x": "", "proc/x": "", "identity/x": "",
	} {
		err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755)
		if err == nil {
			err = os.WriteFile(n.path(name), []byte(content), 0o755)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	n.startKubelet(b)
	api.ProjectInto(n.path("identity"))
	host, port, err := net.SplitHostPort(api.Address())
	if err != nil {
		b.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.Command("/bin/sh", "-c", runNode)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "DIR=" + dir, "PROGRAM=" + builtProgram(b, "sluice-node"),
		"KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
		"NODE_NAME=" + apiservertest.Node, "POD_NAME=sluice-node-x7k2p", "POD_NAMESPACE=" + apiservertest.Namespace,
		"MOUNTED_CNI_NET_DIR=" + n.path("conf"), "SLUICE_MOUNTED_BIN_DIR=" + n.path("bin"),
		"SLUICE_MOUNTED_CACHE_DIR=" + n.path("cache"), "SLUICE_SOURCE_DIR=" + n.path("image"),
		"CNI_AGENT_RUN_DIR=" + n.path("run"), "SLUICE_STATE_DIR=" + n.path("state"),
		"SLUICE_HEALTH_PORT=" + observetest.Port(b), "MONITORING_PORT=0",
		"SLUICE_MOUNTED_PROC_DIR=" + n.path("proc"),
		"AMBIENT_ENABLED=true", "ZTUNNEL_UDS_ADDRESS=" + n.socket(), "SLUICE_LOG_LEVEL=warn",
	}
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if b.Failed() {
			text := log.String()
			b.Logf("sluice-node: %s", text[max(0, len(text)-3000):])
		}
	})
	rulestest.EventuallySucceeds(b, "sluice-node is ready", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s, err := protocol.Caller{Socket: protocol.SocketIn(n.path("run"))}.Status(ctx)
		if err == nil && !s.Ready {
			err = fmt.Errorf("topics of readiness: %+v", s.Topics)
		}
		return err
	})
	return n
}

// startKubelet starts a process named kubelet, and links it as process 1 in the agent's /proc. The
// agent thereby finds the node's init and the kubelet.
func (n node) startKubelet(b *testing.B) {
	b.Helper()
	sleep, err := os.ReadFile(netnstest.RequireBinary(b, "sleep"))
	if err == nil {
		err = os.WriteFile(n.path("image/kubelet"), sleep, 0o755)
	}
	if err != nil {
		b.Fatal(err)
	}
	kubelet := exec.Command(n.path("image/kubelet"), "1000")
	if err := netnstest.New(b).Do(kubelet.Start); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = kubelet.Process.Kill()
		_ = kubelet.Wait()
	})
	if err := os.Symlink(fmt.Sprintf("/proc/%d", kubelet.Process.Pid), n.path("proc/1")); err != nil {
		b.Fatal(err)
	}
}

func (n node) path(name string) string { return filepath.Join(n.dir, name) }

func (n node) socket() string { return n.path("z/z.sock") }

func (n node) add(p pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := protocol.Caller{Socket: protocol.SocketIn(n.path("run"))}.Enroll(ctx, "app", p.name, p.uid(),
		[]netip.Addr{netip.AddrFrom4([4]byte{10, 244, 1, 99})}, p.ns.FD())
	return err
}

func (node) remove(pod) error { return nil }
