package agent_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/rules"
)

// TestUninstallRemovesTheKubeconfigAlthoughRulesRemain uninstalls the plugin from a node whose
// network namespace cannot be opened. Uninstall must report that the rules for probes remain, and
// still remove the kubeconfig.
func TestUninstallRemovesTheKubeconfigAlthoughRulesRemain(t *testing.T) {
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"] = "true"
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.path("proc")
	v := readSettings(t, tn.env)
	_, parsed, err := agent.Element(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(parsed.Kubeconfig, []byte("credentials"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := agent.Uninstall(t.Context(), v, tn.path("image/noop"), zap.NewNop()); err == nil ||
		!strings.Contains(err.Error(), "rules for probes") {
		t.Errorf("Uninstall returns the error %v, want one about the rules for probes", err)
	}
	if _, err := os.Stat(parsed.Kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig after Uninstall: %v, want that it does not exist", err)
	}
}

// TestUninstallByHandRemovesTheRulesOfPods covers a node whose agent was killed while pods were in
// ambient mode. The documented uninstall command, which is not told that ambient mode was enabled,
// removes their rules. The rules of pods with sidecars stay.
func TestUninstallByHandRemovesTheRulesOfPods(t *testing.T) {
	t.Parallel() // mostly waits
	t.Run("the plugin is removed", func(t *testing.T) { testUninstallByHand(t, newTestNode(t), "") })
	t.Run("the plugin cannot be removed, because the lock is held", func(t *testing.T) {
		tn := newTestNode(t)
		lock, err := journal.Acquire(t.Context(), tn.path("state"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = lock.Release() }()
		testUninstallByHand(t, tn, "lock")
	})
}

// testUninstallByHand checks that the error contains wantErr, and that there is none if wantErr is
// empty.
func testUninstallByHand(t *testing.T, tn *testNode, wantErr string) {
	t.Helper()
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.path("proc")
	host, first, second, sidecar := netnstest.New(t), netnstest.New(t), netnstest.New(t), netnstest.New(t)
	for pid, ns := range map[string]*netns.NS{"1": host, "7": first, "8": first, "9": second, "10": sidecar} {
		dir := tn.path("proc/" + pid + "/ns")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, target := range map[string]string{
			"net": fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.FD()), "cgroup": "/proc/self/ns/cgroup",
		} {
			if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ambientRules, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err != nil {
		t.Fatal(err)
	}
	sidecarRules, err := rules.Compile(rules.DefaultRedirect())
	if err != nil {
		t.Fatal(err)
	}
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	for ns, rs := range map[*netns.NS]rules.Ruleset{
		first: ambientRules, second: ambientRules, sidecar: sidecarRules,
	} {
		if _, err := backend.Apply(ns, rs, compat.Snapshot{}); err != nil {
			t.Fatal(err)
		}
	}
	v := readSettings(t, tn.env)
	core, logged := observer.New(zap.WarnLevel)
	err = agent.Uninstall(t.Context(), v, tn.path("image/noop"), zap.New(core))
	if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
		t.Errorf("error %v, want one that contains %q, or none if it is empty", err, wantErr)
	}
	for ns, want := range map[*netns.NS]int{first: 0, second: 0, sidecar: 1} {
		if installed, err := compat.InstalledBackends(ns); err != nil || len(installed) != want {
			t.Errorf("rules in %d backends, error %v; want %d", len(installed), err, want)
		}
	}
	if entries := logged.FilterField(zap.Int("pods", 2)).All(); len(entries) != 1 {
		t.Errorf("log %v, want a warning that the rules of two pods were removed", logged.All())
	}
}

// TestUninstallLogsWhetherThePluginIsRemoved checks the message about the result.
func TestUninstallLogsWhetherThePluginIsRemoved(t *testing.T) {
	chain := strings.Replace(primary, "}\n  ]", `},{"type":"sluice-cni"}]`, 1)
	for _, row := range []struct {
		name    string
		files   map[string]string
		message string
		level   zapcore.Level
	}{
		{"nothing is left", nil, "the plugin was removed from the node", zap.InfoLevel},
		{
			"a sandbox needs it",
			map[string]string{"cache/results/net-1-eth0": `{"kind":"cniCacheV1","containerId":"1",` +
				`"config":"` + base64.StdEncoding.EncodeToString([]byte(chain)) + `"}`},
			"the plugin was removed from the node's CNI chain; its executable remains until no " +
				"sandbox needs it and the plugin is uninstalled again",
			zap.InfoLevel,
		},
		{
			"a configuration names it",
			map[string]string{"conf/10-net.conflist": chain + ","},
			"the plugin is not removed completely, because a configuration names it or may name it; " +
				"correct or remove this file, and uninstall again",
			zap.WarnLevel,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			tn := newTestNode(t)
			tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.path("proc")
			tn.writeFile("bin/sluice-cni", "the plugin")
			if err := os.Chmod(tn.path("bin/sluice-cni"), 0o755); err != nil {
				t.Fatal(err)
			}
			for name, content := range row.files {
				tn.writeFile(name, content)
			}
			core, logged := observer.New(zap.InfoLevel)
			// The rules for probes cannot be removed from a node without processes.
			_ = agent.Uninstall(t.Context(), readSettings(t, tn.env), tn.path("image/noop"), zap.New(core))
			var results []string
			for _, e := range logged.All() {
				if strings.HasPrefix(e.Message, "the plugin ") {
					results = append(results, e.Level.String()+" "+e.Message)
				}
			}
			if want := []string{row.level.String() + " " + row.message}; !slices.Equal(results, want) {
				t.Errorf("logged %q, want %q; all: %v", results, want, logged.All())
			}
		})
	}
}

// TestSIGTERMDuringAnExitUninstalls covers a DaemonSet that is deleted while its agent exits for a
// different reason: the agent is not started again, and must remove the plugin.
func TestSIGTERMDuringAnExitUninstalls(t *testing.T) {
	tn := newTestNode(t)
	var exit func()
	var reporting <-chan struct{}
	r := tn.run(func(a *agent.Agent) { exit, reporting = a.HoldExitReport() })
	r.waitReady()
	exit()
	<-reporting
	tn.SetDaemonSet("")
	r.stop()
	if err := <-r.done; err == nil || !strings.Contains(err.Error(), "new mounts") {
		t.Errorf("the agent exited with %v, want an error about new mounts", err)
	}
	if chain := tn.chain(); slices.Contains(chain, "sluice-cni") {
		t.Errorf("the chain is %v, want it without the plugin", chain)
	}
}

// TestFailedUninstallationEndsAmbientMode covers an agent that cannot remove the plugin, because
// another process holds the lock. Since no agent follows, it must still remove the rules of ambient
// mode.
func TestFailedUninstallationEndsAmbientMode(t *testing.T) {
	t.Parallel() // mostly waits
	host := netnstest.New(t)
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"], tn.env["ZTUNNEL_UDS_ADDRESS"] = "true", tn.path("z/z.sock")
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.startNodeProcess(host)
	r := tn.run(nil)
	r.waitReady()
	r.until("the node has rules for probes", func() bool { return backendsWithRules(t, host) == 1 })
	tn.SetDaemonSet("")
	lock, err := journal.Acquire(t.Context(), tn.path("state"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	r.stop()
	if err := <-r.done; err == nil || !strings.Contains(err.Error(), "lock") {
		t.Errorf("the agent ended with %v, want an error about the lock", err)
	}
	if n := backendsWithRules(t, host); n != 0 {
		t.Errorf("%d backends have rules of the node after the failed uninstallation, want none", n)
	}
}
