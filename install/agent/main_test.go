package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/agent/observe/observetest"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// TestMain runs the plugin if the environment variables of a runtime are set, and an agent if the
// environment variables of [testNode.startChild] are set.
func TestMain(m *testing.M) {
	if os.Getenv("CNI_COMMAND") != "" {
		os.Exit(plugin.Main("test"))
	}
	if os.Getenv(childEnv) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m)
}

const primary = `{
  "cniVersion": "1.0.0",
  "name": "cluster",
  "plugins": [
    {"type": "bridge", "mtu": 1400}
  ]
}
`

// A testNode is a node with a primary network, an agent's image, and an API server.
type testNode struct {
	*apiservertest.Server
	t   *testing.T
	dir string
	env map[string]string
	// replacementTimeout is the time that the kubelet has to replace a token.
	replacementTimeout time.Duration
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	// Paths of sockets must be short.
	dir, err := os.MkdirTemp("", "node")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	tn := &testNode{Server: apiservertest.StartForAgent(t), t: t, dir: dir}
	tn.env = map[string]string{
		"NODE_NAME": apiservertest.Node, "POD_NAME": "sluice-node-x7k2p",
		"POD_NAMESPACE":       apiservertest.Namespace,
		"MOUNTED_CNI_NET_DIR": tn.path("conf"), "SLUICE_MOUNTED_BIN_DIR": tn.path("bin"),
		"SLUICE_MOUNTED_CACHE_DIR": tn.path("cache"),
		"SLUICE_SOURCE_DIR":        tn.path("image"), "CNI_AGENT_RUN_DIR": tn.path("run"),
		"SLUICE_STATE_DIR":   tn.path("state"),
		"SLUICE_HEALTH_PORT": observetest.Port(t), "MONITORING_PORT": observetest.Port(t),
		"SLUICE_UNINSTALL_TIMEOUT": "100ms",
	}
	for name, content := range map[string]string{
		"conf/10-net.conflist": primary, "image/sluice-cni": "the plugin",
		"image/noop": "does nothing", "bin/bridge": "the network's plugin",
	} {
		tn.writeFile(name, content)
	}
	if err := os.MkdirAll(tn.path("run"), 0o755); err != nil {
		t.Fatal(err)
	}
	return tn
}

func (tn *testNode) path(name string) string { return filepath.Join(tn.dir, name) }

func (tn *testNode) writeFile(name, content string) {
	tn.t.Helper()
	err := os.MkdirAll(filepath.Dir(tn.path(name)), 0o755)
	if err == nil {
		err = os.WriteFile(tn.path(name), []byte(content), 0o644)
	}
	if err != nil {
		tn.t.Fatal(err)
	}
}

// files returns the names of all files in directories.
func (tn *testNode) files(dirs ...string) []string {
	tn.t.Helper()
	names := map[string]bool{}
	for _, dir := range dirs {
		_ = filepath.WalkDir(tn.path(dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				names[strings.TrimPrefix(path, tn.dir+"/")] = true
			}
			return nil
		})
	}
	return slices.Sorted(maps.Keys(names))
}

// running is a running agent.
type running struct {
	*testNode
	stop context.CancelFunc
	done chan error
}

// run creates an agent, changes it with change unless change is nil, and starts it.
func (tn *testNode) run(change func(*agent.Agent)) *running {
	tn.t.Helper()
	return tn.start(tn.apiOptions(), change)
}

// apiOptions returns the options for a client of the API server.
func (tn *testNode) apiOptions() apiclient.Options {
	tn.t.Helper()
	return apiclient.Options{Server: tn.URL(), TokenFile: tn.TokenFile(), CAFile: tn.CAFile()}
}

// start starts an agent with the given options for the API server.
func (tn *testNode) start(api apiclient.Options, change func(*agent.Agent)) *running {
	tn.t.Helper()
	log, err := logs.New("debug", true, tn.t.Output())
	if err != nil {
		tn.t.Fatal(err)
	}
	a, err := agent.New(agent.Options{
		Settings: readSettings(tn.t, tn.env), Version: "test", API: api, Noop: tn.path("image/noop"),
		Log: log, TokenReplacementTimeout: tn.replacementTimeout,
	})
	if err != nil {
		tn.t.Fatal(err)
	}
	if change != nil {
		change(a)
	}
	ctx, stop := context.WithCancel(tn.t.Context())
	r := &running{tn, stop, make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	tn.t.Cleanup(stop)
	return r
}

// end stops the agent like SIGTERM.
func (r *running) end() {
	r.t.Helper()
	r.stop()
	if err := <-r.done; err != nil {
		r.t.Error(err)
	}
}

// get sends a request to a port of the agent.
func (r *running) get(port, path string) (code int, text string) {
	r.t.Helper()
	client := http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second,
	}
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet,
		"http://127.0.0.1:"+r.env[port]+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// readiness returns the readiness; the zero value if the port is not open. The port closes
// connections above its rate limit, which polling may exceed: then readiness retries.
func (r *running) readiness() observe.Readiness {
	r.t.Helper()
	code, text := 0, ""
	for range 100 {
		if code, text = r.get("SLUICE_HEALTH_PORT", "/readyz?format=json"); code != 0 ||
			strings.Contains(text, "refused") {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	var readiness observe.Readiness
	_ = json.Unmarshal([]byte(text), &readiness) // the port may not be open yet
	return readiness
}

// maxWait is much longer than any condition needs: a rejected event is sent again after up to 45 s.
const maxWait = 3 * time.Minute

// until waits for a condition.
func (r *running) until(description string, holds func() bool) {
	r.t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	timeout := time.After(maxWait)
	for !holds() {
		select {
		case <-ticker.C:
		case err := <-r.done:
			r.t.Fatalf("the agent has ended: %v", err)
		case <-timeout:
			r.t.Fatalf("not within %s: %s\n%v", maxWait, description, r.readiness())
		}
	}
}

func (r *running) waitReady() {
	r.t.Helper()
	r.until("the agent is ready", func() bool { return r.readiness().Ready })
}

// reasons returns the readiness and the reasons of a part as one text.
func (r *running) reasons(part string) string {
	r.t.Helper()
	for _, p := range r.readiness().Parts {
		if p.Name == part {
			return fmt.Sprint(p.Ready, " ", strings.Join(p.Reasons, "; "))
		}
	}
	return ""
}
