package plugin_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// An output contains the output of the executable and its exit status.
type output struct {
	stdout, stderr string
	status         int
}

// execute runs the plugin like a runtime, in the namespace that represents the host's.
func execute(t *testing.T, host *netns.NS, verb string, c sandboxCall) output {
	t.Helper()
	return run(t, host, command(t, verb, c))
}

// command returns the plugin's process as a runtime starts it. It is killed after a minute.
func command(t *testing.T, verb string, c sandboxCall) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = []string{
		"CNI_COMMAND=" + verb, "CNI_PATH=/opt/cni/bin", "CNI_CONTAINERID=" + c.id,
		"CNI_IFNAME=" + cmp.Or(c.ifname, "eth0"),
		"CNI_NETNS=" + c.netns, "CNI_ARGS=" + c.args,
		// With the race detector a program sleeps for a second at its end, and with coverage it
		// needs a directory for the counters.
		"GORACE=atexit_sleep_ms=0", "GOCOVERDIR=" + t.TempDir(),
	}
	cmd.Stdin = strings.NewReader(c.stdin)
	return cmd
}

// run executes a command in the namespace that represents the host's.
func run(t *testing.T, host *netns.NS, cmd *exec.Cmd) output {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := host.Do(cmd.Run)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// mustFail returns the error that the executable has printed.
func (o output) mustFail(t *testing.T) types.Error {
	t.Helper()
	var e types.Error
	if err := json.Unmarshal([]byte(o.stdout), &e); err != nil || o.status != 1 || e.Code == 0 {
		t.Fatalf("status %d, stdout %q, stderr %q; want an error in JSON and status 1", o.status,
			o.stdout, o.stderr)
	}
	return e
}

// checkSilent fails the test unless the executable has succeeded without standard output.
func (o output) checkSilent(t *testing.T) {
	t.Helper()
	if o.status != 0 || o.stdout != "" {
		t.Errorf("status %d, stdout %q, stderr %q; want 0 and nothing", o.status, o.stdout,
			o.stderr)
	}
}

// pathOf returns a path of the namespace for other processes.
func pathOf(ns *netns.NS) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()) }

// TestExecutableRedirectsAPodOfTheAPIServer checks that the executable reads the pod from an API
// server with a kubeconfig, and installs rules in the sandbox.
func TestExecutableRedirectsAPodOfTheAPIServer(t *testing.T) {
	host, pod := netnstest.New(t), netnstest.New(t)
	var server *apiservertest.Server
	if err := host.Do(func() error { server = apiservertest.Start(t); return nil }); err != nil {
		t.Fatal(err)
	}
	server.Put(podFile(t, "sidecar"))
	c := newCall(t, pod)
	c.netns = pathOf(pod)
	server.WriteKubeconfig(filepath.Join(c.runDir, "sluice-cni-kubeconfig"),
		func(_, _ map[string]any) {})

	if out := execute(t, host, "STATUS", c); out.status != 0 || out.stdout != "" {
		t.Errorf("STATUS: %+v, want success without output", out)
	}
	out := execute(t, host, "ADD", c)
	if out.status != 0 || out.stdout != c.prevResult {
		t.Fatalf("ADD: %+v, want success and the previous result", out)
	}
	checkHasRules(t, pod)
	var line struct {
		Pod, Namespace, Sandbox, Decision, Reason, Backend string
		DurationMS                                         float64 `json:"duration_ms"`
		TransactionBytes                                   int     `json:"transaction_bytes"`
	}
	if err := json.Unmarshal([]byte(out.stderr), &line); err != nil {
		t.Fatalf("standard error is not one line of JSON: %q", out.stderr)
	}
	if line.Pod != podName || line.Namespace != "shop" || line.Sandbox != c.id ||
		line.Decision != "redirect" ||
		line.Reason != "mesh-pod" || line.Backend != "nft" || line.DurationMS <= 0 ||
		line.TransactionBytes == 0 {
		t.Errorf("log line: %s, want the pod, its decision and the rules that were installed", out.stderr)
	}
	if file, err := os.ReadFile(filepath.Join(c.runDir, "sluice-cni.log")); err != nil ||
		string(file) != out.stderr {
		t.Errorf("log file: %q, error %v; want %q", file, err, out.stderr)
	}
	execute(t, host, "CHECK", c).checkSilent(t)
	execute(t, host, "DEL", c).checkSilent(t)
	execute(t, host, "DEL", c).checkSilent(t)
	c.stdin = c.configuration(`"cni.dev/valid-attachments":[]`)
	execute(t, host, "GC", c).checkSilent(t)
	if out := execute(t, host, "VERSION", c); !strings.Contains(out.stdout,
		`"supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`) {
		t.Errorf("VERSION: %+v, want the supported versions", out)
	}
	token := server.Token()
	server.SetToken("another")
	if e := execute(t, host, "ADD", c).mustFail(t); e.Code != 100 ||
		!strings.Contains(e.Msg, "unauthorized") {
		t.Errorf("ADD with a token that is not accepted: %+v, want code 100 and unauthorized", e)
	}
	if e := execute(t, host, "STATUS", c).mustFail(t); e.Code != types.ErrPluginNotAvailable {
		t.Errorf("STATUS with a token that is not accepted: %+v, want code 50", e)
	}
	if file, err := os.ReadFile(filepath.Join(c.runDir, "sluice-cni.log")); err != nil ||
		strings.Contains(string(file), token) {
		t.Errorf("the log contains the token, or cannot be read: %v", err)
	}
}

// TestLongInputIsRefused checks that each verb except DEL refuses more than 4 MiB of input, and
// that ADD accepts 3 MiB. DEL must not fail; see TestDELReadsLongConfigurations.
func TestLongInputIsRefused(t *testing.T) {
	host, pod := netnstest.New(t), netnstest.New(t)
	c := newCall(t, pod)
	c.netns, c.stdin = pathOf(pod), c.configuration(`"exclude_namespaces":["shop"]`)
	short, long := c, c
	short.stdin += strings.Repeat(" ", 3<<20)
	long.stdin += strings.Repeat(" ", 4<<20)
	for _, verb := range []string{"ADD", "CHECK", "STATUS", "GC"} {
		if e := execute(t, host, verb, long).mustFail(t); e.Code != types.ErrIOFailure ||
			e.Msg != "read standard input: more than 4 MiB" {
			t.Errorf("%s: %+v, want that the input is too long", verb, e)
		}
	}
	if out := execute(t, host, "ADD", short); out.status != 0 {
		t.Errorf("ADD with 3 MiB: %+v, want success", out)
	}
}

// TestNoVerbWaitsForAFIFO checks that no verb waits for a writer of a FIFO: ADD and CHECK fail,
// and DEL succeeds as without a namespace.
func TestNoVerbWaitsForAFIFO(t *testing.T) {
	host := netnstest.New(t)
	c := newCall(t, netnstest.New(t))
	c.netns = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(c.netns, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"ADD", "CHECK"} {
		execute(t, host, verb, c).mustFail(t)
	}
	execute(t, host, "DEL", c).checkSilent(t)
}
