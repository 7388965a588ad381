package zds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	agentserver "github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// A pod is a pod of the node.
type pod struct {
	name string
	ns   *netns.NS
}

func (p pod) uid() string { return "00000000-0000-4000-8000-" + fmt.Sprintf("%012x", p.name) }

// An agent is a node agent with a ZDS server, or only the ZDS server.
type agent interface {
	socket() string // path of the ZDS socket
	// add runs a CNI ADD of a pod, and remove deletes the pod.
	add(p pod) error
	remove(p pod) error
}

// sluice is Sluice's ZDS server without an agent. The test calls its methods.
type sluice struct {
	path   string
	server *agentserver.Server
}

// startSluice starts the server. The pod orphan is known to the server, but its network namespace
// is not.
func startSluice(t testing.TB, orphan pod) agent {
	s := sluice{filepath.Join(t.TempDir(), "run", "ztunnel.sock"), nil}
	s.server = agentserver.New(zaptest.NewLogger(t), func(int) {})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.server.Serve(ctx, s.path) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	s.server.Restore([]agentserver.Pod{{
		UID: orphan.uid(), Name: orphan.name, Namespace: "app", ServiceAccount: "sa-" + orphan.name,
	}})
	rulestest.EventuallySucceeds(t, "the server listens", func() error {
		if !s.server.State().Listening {
			return errors.New("the server does not listen")
		}
		return nil
	})
	return s
}

func (s sluice) socket() string { return s.path }

func (s sluice) add(p pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.addUntil(ctx, p)
}

func (s sluice) addUntil(ctx context.Context, p pod) error {
	return s.server.Add(ctx, agentserver.Pod{
		UID: p.uid(), Name: p.name, Namespace: "app", ServiceAccount: "sa-" + p.name, Netns: p.ns,
	})
}

func (s sluice) remove(p pod) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.server.Remove(ctx, p.uid())
}

// istio is istio-cni.
type istio struct {
	dir    string
	api    *apiservertest.Server
	client http.Client // inside the namespace of the node
}

// runIstioCNI is a script that executes install-cni with the directory DIR as root directory,
// because istio-cni uses fixed paths. It also runs a process named kubelet, which istio-cni looks
// up.
const runIstioCNI = `set -e
mount --make-rprivate /
cd "$DIR"
for dir in bin sbin lib lib64 usr dev; do
	if [ -L /$dir ]; then cp -a /$dir $dir; else mkdir -p $dir; mount --rbind /$dir $dir; fi
done
for ns in $NAMESPACES; do
	touch host/run/netns/${ns%%=*}
	mount --bind "${ns#*=}" host/run/netns/${ns%%=*}
done
mount -t proc proc proc
mount -t proc proc host/proc
touch install-cni
mount --bind "$PROGRAM" install-cni
cp /bin/sleep kubelet
./kubelet 1000000 &
exec chroot . /install-cni --ctrlz_port 0`

// startIstio starts istio-cni in its own namespaces. The pod orphan is annotated as enrolled, but
// its network namespace is unknown.
func startIstio(t testing.TB, program string, orphan pod, pods []pod) agent {
	dir, err := os.MkdirTemp("", "zds") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	node := netnstest.New(t)
	i := istio{
		dir, apiservertest.StartForAgent(t), http.Client{Transport: &http.Transport{
			DialContext: dialIn(node), DisableKeepAlives: true,
		}},
	}
	i.api.Put(`{kind: Namespace, metadata: {name: app, labels: {istio.io/dataplane-mode: ambient}}}`)
	namespaces := ""
	for n, p := range append([]pod{orphan}, pods...) {
		annotations := ""
		if p == orphan {
			annotations = "ambient.istio.io/redirection: enabled"
		}
		i.api.Put(fmt.Sprintf(`{metadata: {name: %s, namespace: app, uid: %q, annotations: {%s}},
			spec: {nodeName: %s, serviceAccountName: sa-%[1]s},
			status: {phase: Running, podIP: 10.244.1.%[5]d, podIPs: [{ip: 10.244.1.%[5]d}]}}`,
			p.name, p.uid(), annotations, apiservertest.Node, 10+n))
		if p != orphan {
			namespaces += fmt.Sprintf(" %s=/proc/%d/fd/%d", p.name, os.Getpid(), p.ns.FD())
		}
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount"
	for _, name := range []string{
		"proc", "tmp", "etc", "run", "opt/cni/bin", "host/opt/cni/bin", "host/etc/cni/net.d", "host/proc",
		"host/run/netns", "var/run/istio-cni", "var/run/ztunnel", account,
	} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	i.api.ProjectInto(filepath.Join(dir, account))
	for name, content := range map[string]string{
		"etc/hosts": "127.0.0.1 localhost\n", "opt/cni/bin/istio-cni": "the plugin",
		"host/etc/cni/net.d/10-net.conflist": `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge"}]}`,
		account + "/namespace":               apiservertest.Namespace,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	host, port, err := net.SplitHostPort(forward(t, node, i.api.Address()))
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	command := exec.Command("/bin/sh", "-c", runIstioCNI)
	command.Env = []string{
		"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "DIR=" + dir, "PROGRAM=" + program,
		"NAMESPACES=" + namespaces, "KUBERNETES_SERVICE_HOST=" + host, "KUBERNETES_SERVICE_PORT=" + port,
		"CHAINED_CNI_PLUGIN=true", "EXCLUDE_NAMESPACES=kube-system", "REPAIR_ENABLED=false",
		"AMBIENT_ENABLED=true", "AMBIENT_IPV6=true", "AMBIENT_DNS_CAPTURE=true",
		"AMBIENT_RECONCILE_POD_RULES_ON_STARTUP=true", "NATIVE_NFTABLES=true",
		`AMBIENT_ENABLEMENT_SELECTOR=[{namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}}]`,
		"NODE_NAME=" + apiservertest.Node, "KUBERNETES_NODE_NAME=" + apiservertest.Node,
		"POD_NAME=istio-cni-node-x7k2p", "POD_NAMESPACE=" + apiservertest.Namespace,
	}
	command.Stdout, command.Stderr = &log, &log
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID}
	if err := node.Do(command.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			text := log.String()
			t.Logf("istio-cni: %s", text[max(0, len(text)-6000):])
		}
		_ = os.RemoveAll(dir)
	})
	rulestest.EventuallySucceeds(t, "istio-cni is ready", func() error {
		_, err := i.get("http://127.0.0.1:8000/readyz")
		return err
	})
	return i
}

// get requests a URL of istio-cni, and returns the body.
func (i istio) get(url string) (string, error) {
	response, err := i.client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

// connected returns the metric ztunnel_connected, which also counts connections without a hello.
func (i istio) connected() (line string, err error) {
	text, err := i.get("http://127.0.0.1:15014/metrics")
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "ztunnel_connected") {
			return strings.TrimSpace(line), nil
		}
	}
	if err == nil {
		err = errors.New("no metric ztunnel_connected")
	}
	return "", err
}

func (i istio) socket() string { return filepath.Join(i.dir, "var/run/ztunnel/ztunnel.sock") }

// add sends the request that istio-cni's plugin sends.
func (i istio) add(p pod) error {
	body, err := json.Marshal(map[string]any{
		"Netns": "/run/netns/" + p.name, "PodName": p.name, "PodNamespace": "app",
		"IPs": []any{map[string]any{"Address": net.IPNet{
			IP: net.IPv4(10, 244, 1, 99), Mask: net.CIDRMask(24, 32),
		}}},
	})
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("unix", filepath.Join(i.dir, "var/run/istio-cni/pluginevent.sock"))
		},
		DisableKeepAlives: true,
	}}
	response, err := client.Post("http://unix/cmdadd", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return err
}

func (i istio) remove(p pod) error {
	i.api.DeletePod("app", p.name)
	return nil
}

// dialIn returns a function that dials in a network namespace.
func dialIn(ns *netns.NS) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, address string) (conn net.Conn, err error) {
		err = ns.Do(func() error {
			conn, err = net.DialTimeout(network, address, 10*time.Second)
			return err
		})
		return conn, err
	}
}

// forward listens in a network namespace, and forwards connections to an address outside.
func forward(t testing.TB, ns *netns.NS, to string) string {
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(in, out)
					_ = in.Close()
				}()
				_, _ = io.Copy(out, in)
			}()
		}
	}()
	return l.Addr().String()
}
