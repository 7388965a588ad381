package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/install/agent/observe/observetest"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// If identityEnv is set, the test binary runs as sluice-node. The value is the directory of the
// pod's token and certificate authority; if it is empty, the pod has none.
const identityEnv = "SLUICE_TEST_IDENTITY"

func TestMain(m *testing.M) {
	identity, child := os.LookupEnv(identityEnv)
	if !child {
		os.Exit(m.Run())
	}
	if err := mountIdentity(identity); err != nil {
		panic(err)
	}
	if err := execProgram(); err != nil {
		panic(err)
	}
	main()
}

// mountIdentity provides the token and the certificate authority where the kubelet mounts them, in
// the mount namespace of this process.
func mountIdentity(dir string) error {
	if dir == "" {
		return nil
	}
	var files [2][]byte
	for i, name := range []string{"token", "ca.crt"} {
		var err error
		if files[i], err = os.ReadFile(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
		os.MkdirAll(filepath.Dir(tokenFile), 0o700),
		os.WriteFile(tokenFile, files[0], 0o600), os.WriteFile(caFile, files[1], 0o600),
	)
}

const primary = `{"cniVersion": "1.0.0", "name": "cluster", "plugins": [{"type": "bridge"}]}`

type testNode struct {
	*apiservertest.Server
	t   *testing.T
	dir string
	env []string
	url string // of the health port
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	netnstest.RequireRoot(t)
	dir, err := os.MkdirTemp("", "node") // paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	node := &testNode{Server: apiservertest.StartForAgent(t), t: t, dir: dir}
	for _, d := range []string{"conf", "bin", "run", "image", "identity"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	node.writeFile("conf/10-net.conflist", primary)
	node.writeFile("image/sluice-cni", "the plugin")
	node.ProjectInto(node.path("identity"))
	port := observetest.Port(t)
	node.url = "http://127.0.0.1:" + port
	host, apiPort, _ := net.SplitHostPort(node.Address())
	node.env = []string{
		identityEnv + "=" + node.path("identity"), "KUBERNETES_SERVICE_HOST=" + host,
		"KUBERNETES_SERVICE_PORT=" + apiPort,
		"NODE_NAME=" + apiservertest.Node, "POD_NAME=sluice-node-x7k2p",
		"POD_NAMESPACE=" + apiservertest.Namespace,
		"MOUNTED_CNI_NET_DIR=" + node.path("conf"), "SLUICE_MOUNTED_BIN_DIR=" + node.path("bin"),
		"SLUICE_MOUNTED_CACHE_DIR=" + node.path("cache"),
		"SLUICE_SOURCE_DIR=" + node.path("image"), "CNI_AGENT_RUN_DIR=" + node.path("run"),
		"SLUICE_STATE_DIR=" + node.path("state"),
		"SLUICE_HEALTH_PORT=" + port, "MONITORING_PORT=0", "SLUICE_UNINSTALL_TIMEOUT=100ms",
		"SLUICE_LOG_JSON=true",
	}
	return node
}

func (node *testNode) path(name string) string { return filepath.Join(node.dir, name) }

func (node *testNode) writeFile(name, content string) {
	node.t.Helper()
	if err := os.WriteFile(node.path(name), []byte(content), 0o644); err != nil {
		node.t.Fatal(err)
	}
}

func (node *testNode) conflist() string {
	node.t.Helper()
	data, err := os.ReadFile(node.path("conf/10-net.conflist"))
	if err != nil {
		node.t.Fatal(err)
	}
	return string(data)
}

// A process is a started sluice-node with its output.
type process struct {
	*exec.Cmd
	out bytes.Buffer
}

func start(t *testing.T, env []string, stdin string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), self, args...)}
	// With the race detector a program sleeps for a second at its end.
	p.Env = append(slices.Clone(env), "GORACE=atexit_sleep_ms=0")
	p.Stdin, p.Stdout, p.Stderr = strings.NewReader(stdin), &p.out, &p.out
	p.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (node *testNode) start(args ...string) *process {
	node.t.Helper()
	return start(node.t, node.env, "", args...)
}

// ask sends a request to the health port.
func (node *testNode) ask(method, path, body string) (code int, answer string) {
	r, err := http.NewRequestWithContext(node.t.Context(), method, node.url+path, strings.NewReader(body))
	if err != nil {
		node.t.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func (node *testNode) waitReady() {
	node.t.Helper()
	ctx, cancel := context.WithTimeout(node.t.Context(), 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	text := ""
	for {
		code := 0
		if code, text = node.ask("GET", "/readyz", ""); code == 200 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			node.t.Fatalf("the agent is not ready within 30 s: %s", text)
		}
	}
}

// end sends SIGTERM and waits for the process.
func (node *testNode) end(p *process) {
	node.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		node.t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		node.t.Errorf("the agent ended with %v:\n%s", err, p.out.String())
	}
}
