package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// TestSIGTERMKeepsThePluginUnlessNoAgentFollows checks that the plugin is kept on SIGTERM, unless
// the API server confirms that no agent follows.
func TestSIGTERMKeepsThePluginUnlessNoAgentFollows(t *testing.T) {
	node := newTestNode(t)
	begin := time.Now()
	p := node.start("run")
	node.waitReady()
	t.Logf("ready after %v", time.Since(begin))
	if status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.Pid),
		"status")); err == nil {
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		line, _, _ := strings.Cut(rest, "\n")
		t.Logf("resident: %s", strings.TrimSpace(line))
	}
	if code, text := node.ask("PUT", "/log-level", "debug"); code != 200 || text != "debug\n" {
		t.Errorf("PUT /log-level: %d %q, want 200 and the level", code, text)
	}
	if out, err := start(t, node.env, "", "uninstall").wait(); err == nil ||
		!strings.Contains(out, "an agent is running on this node") {
		t.Errorf("uninstall while the agent runs: error %v, want a refusal: %s", err, out)
	}
	node.end(p)
	if !strings.Contains(node.conflist(), "sluice-cni") {
		t.Errorf("the plugin was removed on SIGTERM although the DaemonSet exists:\n%s", p.out.String())
	}
	p = node.start("run")
	node.waitReady()
	node.SetDaemonSet(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`)
	node.end(p)
	if got := node.conflist(); got != primary {
		t.Errorf("the configuration was not restored: %s\n%s", got, p.out.String())
	}
	if _, err := os.Stat(node.path("bin/sluice-cni")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("stat of the executable: error %v, want %v", err, os.ErrNotExist)
	}
}

// wait waits for the end of the process, and returns its output and the error of Wait.
func (p *process) wait() (string, error) {
	err := p.Wait()
	return p.out.String(), err
}

// TestFilesOfAKilledAgentAreRemovedByHand checks that the files of a killed agent can be removed by
// hand, with only the directories as settings.
func TestFilesOfAKilledAgentAreRemovedByHand(t *testing.T) {
	node := newTestNode(t)
	p := node.start("run")
	node.waitReady()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	for i, e := range node.env {
		if strings.HasPrefix(e, "NODE_NAME=") || strings.HasPrefix(e, "POD_NAME") {
			node.env[i] = "UNUSED="
		}
	}
	if out, err := node.start("uninstall").wait(); err != nil {
		t.Fatalf("uninstall: %v: %s", err, out)
	}
	if got := node.conflist(); got != primary {
		t.Errorf("the configuration was not restored: %s", got)
	}
}

func TestUninstallClusterDeletesTheDaemonSet(t *testing.T) {
	node := newTestNode(t)
	// The first three variables are the identity and the address of the API server.
	env := append(node.env[:3:3], "POD_NAMESPACE="+apiservertest.Namespace, "SLUICE_LOG_LEVEL=info")
	if out, err := start(t, env, "", "uninstall", "--cluster").wait(); err != nil ||
		len(node.Deletes()) != 1 {
		t.Errorf("error %v, %d deletes, want 1: %s", err, len(node.Deletes()), out)
	}
	node.RefuseDaemonSets(403)
	if out, err := start(t, env, "", "uninstall", "--cluster").wait(); err == nil ||
		!strings.Contains(out, "403") {
		t.Errorf("without the permission: error %v, want 403: %s", err, out)
	}
	if out, err := start(t, env[:3], "", "uninstall", "--cluster").wait(); err == nil ||
		!strings.Contains(out, "POD_NAMESPACE") {
		t.Errorf("without the namespace: error %v, want one that names POD_NAMESPACE: %s", err, out)
	}
}

func TestAllInvalidSettingsAreReported(t *testing.T) {
	out, err := start(t,
		[]string{identityEnv + "=", "POD_NAME=x", "REPAIR_NODE_NAME=y", "SLUICE_BACKEND=ebpf"}, "",
		"run").wait()
	if err == nil {
		t.Fatal("the agent runs with invalid settings")
	}
	for _, want := range []string{"NODE_NAME", "REPAIR_NODE_NAME is not supported", `"ebpf"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %s: %s", want, out)
		}
	}
}

// TestNoopPluginRejectsOnlyADD checks that the no-op plugin rejects ADD, and that its other verbs
// succeed without output.
func TestNoopPluginRejectsOnlyADD(t *testing.T) {
	call := func(verb string) (string, error) {
		env := []string{
			identityEnv + "=", "CNI_COMMAND=" + verb, "CNI_CONTAINERID=a", "CNI_IFNAME=eth0",
			"CNI_NETNS=/run/netns/gone",
			"CNI_PATH=/opt/cni/bin",
		}
		return start(t, env, `{"cniVersion":"1.1.0","name":"cluster","type":"istio-cni","prevResult":{"cniVersion":"1.1.0"},
			"cni.dev/valid-attachments":[]}`).wait()
	}
	for _, verb := range []string{"DEL", "CHECK", "GC", "STATUS"} {
		if out, err := call(verb); err != nil || out != "" {
			t.Errorf("%s: error %v, want none and no output: %s", verb, err, out)
		}
	}
	if out, err := call("ADD"); err == nil || !strings.Contains(out, `"code": 11`) {
		t.Errorf("ADD: error %v, want code 11: %s", err, out)
	}
}
