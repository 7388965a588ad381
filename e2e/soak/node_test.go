package soak

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/agent/observe/observetest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

const (
	// netnsDir is the directory in which the runtime mounts network namespaces.
	netnsDir = "/run/netns"
	// accountDir is the directory in which kubelet projects the service account.
	accountDir = "/run/secrets/kubernetes.io/serviceaccount"
	conflist   = "conf/10-net.conflist"
)

// primary is the configuration of the cluster's network plugin. primaryPlugin is the plugin, a
// script that only prints a result, because the test creates the network.
const (
	primary       = `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "address"}]}`
	primaryPlugin = `#!/bin/sh
[ "$CNI_COMMAND" = ADD ] || exit 0
printf '{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "%s"}],
	"ips": [{"address": "` + podAddress + `/24", "interface": 0}]}' "$CNI_NETNS"
`
)

// thisVersion is the directory with the programs of this version.
var thisVersion = filepath.Join("..", "..", "bin")

// A node is an agent, an API server, and a container runtime that only runs CNI plugins.
type node struct {
	t       testing.TB
	dir     string
	api     *apiservertest.Server
	agent   *exec.Cmd
	stop    func() // stops the agent
	log     bytes.Buffer
	metrics string // address of the agent's metrics
	plugin  *libcni.CNIConfig
	client  http.Client
}

// newNode starts a node with the agent in the directory agent and the plugin in the directory
// plugin. It returns when the agent is ready and has installed the plugin.
func newNode(t testing.TB, agent, plugin string) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "soak") // the paths of sockets must be short
	must(t, err)
	n := &node{
		t: t, dir: dir, api: apiservertest.StartForAgent(t),
		client: http.Client{Timeout: 10 * time.Second},
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	for _, d := range []string{"conf", "bin", "primary", "run", "state", "image", "cache"} {
		must(t, os.Mkdir(n.path(d), 0o755))
	}
	must(t, os.WriteFile(n.path("primary/address"), []byte(primaryPlugin), 0o755))
	must(t, os.WriteFile(n.path(conflist), []byte(primary), 0o644))
	must(t, os.MkdirAll(accountDir, 0o755))
	n.api.ProjectInto(accountDir)
	n.plugin = libcni.NewCNIConfigWithCacheDir([]string{n.path("bin"), n.path("primary")},
		n.path("cache"), &invoke.DefaultExec{
			RawExec: &invoke.RawExec{Stderr: io.Discard}, // the agent logs the plugin's messages
		})
	n.start(agent, plugin)
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// start starts the agent in the directory agent, with the plugin in the directory plugin. Mounts of
// the node that are made later appear in the agent's mount namespace.
func (n *node) start(agent, plugin string) {
	n.t.Helper()
	program, err := filepath.Abs(filepath.Join(agent, "sluice-node"))
	must(n.t, err)
	executable, err := os.ReadFile(filepath.Join(plugin, "sluice-cni"))
	must(n.t, err)
	must(n.t, os.WriteFile(n.path("image/sluice-cni"), executable, 0o755))
	host, port, err := net.SplitHostPort(n.api.Address())
	must(n.t, err)
	health, metrics := observetest.Port(n.t), observetest.Port(n.t)
	n.metrics = "http://127.0.0.1:" + metrics + "/metrics"
	n.agent = exec.Command("unshare", "--mount", "--propagation", "slave", program, "run")
	n.agent.Env = []string{
		"PATH=" + os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST=" + host,
		"KUBERNETES_SERVICE_PORT=" + port,
		"NODE_NAME=" + apiservertest.Node, "POD_NAME=sluice-node-x7k2p",
		"POD_NAMESPACE=" + apiservertest.Namespace,
		"MOUNTED_CNI_NET_DIR=" + n.path("conf"), "SLUICE_MOUNTED_BIN_DIR=" + n.path("bin"),
		"SLUICE_MOUNTED_CACHE_DIR=" + n.path("cache"),
		"SLUICE_HOST_NETNS_DIR=" + netnsDir, "SLUICE_MOUNTED_NETNS_DIR=" + netnsDir,
		"SLUICE_SEARCH_PROC=false",
		"SLUICE_SOURCE_DIR=" + n.path("image"), "CNI_AGENT_RUN_DIR=" + n.path("run"),
		"SLUICE_STATE_DIR=" + n.path("state"),
		"SLUICE_HEALTH_PORT=" + health, "MONITORING_PORT=" + metrics,
	}
	n.agent.Stdout, n.agent.Stderr = &n.log, &n.log
	n.agent.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the kernel kills the agent when the thread that started it ends
		started <- n.agent.Start()
		<-ended
		runtime.UnlockOSThread()
	}()
	must(n.t, <-started)
	n.stop = func() {
		defer close(ended)
		_ = n.agent.Process.Signal(unix.SIGTERM)
		if err := n.agent.Wait(); err != nil || n.t.Failed() {
			n.t.Logf("the agent exited (error %v); end of its log:\n%s", err, lastLines(n.log.String()))
		}
	}
	rulestest.EventuallySucceeds(n.t, "the node is ready", func() error {
		r, err := n.client.Get("http://127.0.0.1:" + health + "/readyz")
		if err != nil {
			return err
		}
		defer func() { _ = r.Body.Close() }()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("readiness: %s", r.Status)
		}
		return nil
	})
}

// lastLines returns the complete lines in the last 4000 bytes.
func lastLines(text string) string {
	const maxBytes = 4000
	text = text[max(len(text)-maxBytes, 0):]
	return text[strings.IndexByte(text, '\n')+1:]
}

// timeout is the time limit of a plugin call and of a repair. It is long, because the machine may
// be busy.
const timeout = 30 * time.Second

// must fails the test immediately if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
