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

// identityEnv makes the test binary the agent in a pod whose service account is in the directory of
// its value.
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

// mountIdentity mounts files where the kubelet does, in the mount namespace of this process.
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
	b := &testNode{Server: apiservertest.StartForAgent(t), t: t, dir: dir}
	for _, d := range []string{"conf", "bin", "run", "image", "identity"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b.writeFile("conf/10-net.conflist", primary)
	b.writeFile("image/sluice-cni", "the plugin")
	b.ProjectInto(b.path("identity"))
	port := observetest.Port(t)
	b.url = "http://127.0.0.1:" + port
	host, apiPort, _ := net.SplitHostPort(b.Address())
	b.env = []string{
		identityEnv + "=" + b.path("identity"), "KUBERNETES_SERVICE_HOST=" + host,
		"KUBERNETES_SERVICE_PORT=" + apiPort,
		"NODE_NAME=" + apiservertest.Node, "POD_NAME=sluice-node-x7k2p",
		"POD_NAMESPACE=" + apiservertest.Namespace,
		"MOUNTED_CNI_NET_DIR=" + b.path("conf"), "SLUICE_MOUNTED_BIN_DIR=" + b.path("bin"),
		"SLUICE_MOUNTED_CACHE_DIR=" + b.path("cache"),
		"SLUICE_SOURCE_DIR=" + b.path("image"), "CNI_AGENT_RUN_DIR=" + b.path("run"),
		"SLUICE_STATE_DIR=" + b.path("state"),
		"SLUICE_HEALTH_PORT=" + port, "MONITORING_PORT=0", "SLUICE_UNINSTALL_TIMEOUT=100ms",
		"SLUICE_LOG_JSON=true",
	}
	return b
}

func (b *testNode) path(name string) string { return filepath.Join(b.dir, name) }

func (b *testNode) writeFile(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *testNode) conflist() string {
	b.t.Helper()
	data, err := os.ReadFile(b.path("conf/10-net.conflist"))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}

// A process is the command in its own process.
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

func (b *testNode) start(args ...string) *process {
	b.t.Helper()
	return start(b.t, b.env, "", args...)
}

// ask sends a request to the health port.
func (b *testNode) ask(method, path, body string) (code int, answer string) {
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
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

func (b *testNode) waitReady() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	text := ""
	for {
		code := 0
		if code, text = b.ask("GET", "/readyz", ""); code == 200 {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			b.t.Fatalf("not ready within 30 s: %s", text)
		}
	}
}

// end sends SIGTERM and waits for the process.
func (b *testNode) end(p *process) {
	b.t.Helper()
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		b.t.Errorf("the agent ended with %v:\n%s", err, p.out.String())
	}
}
