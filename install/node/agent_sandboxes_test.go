package node_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
)

// TestUninstallDoesNotWaitForTheAgentsOwnSandboxes covers the sandboxes of the agent and of the
// uninstall job, which end after the agent.
func TestUninstallDoesNotWaitForTheAgentsOwnSandboxes(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	before := tn.filesToRestore()
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResultWithArgs("agent", podArgs("istio-system", "sluice-node-x2k4n"), "calico", "sluice-cni")
	tn.cacheResultWithArgs("hook", podArgs("istio-system", "sluice-node-7tq9d"), "calico", "sluice-cni")
	start := time.Now()
	report, err := tn.node().Uninstall(t.Context(), time.Minute)
	if elapsed := time.Since(start); elapsed > 50*time.Second {
		t.Errorf("uninstallation took %v, want at most 50 s, without waiting for the agent's sandboxes",
			elapsed)
	}
	if err != nil || len(report.Left) != 1 ||
		report.Left[0] != (node.Leftover{
			Path: tn.path("bin/sluice-cni"), References: 2, AgentPods: 2, Noop: true,
		}) {
		t.Fatalf("the report is %+v, error %v; want the no-op with 2 sandboxes of the agent", report, err)
	}
	if message := report.Left[0].String(); !strings.Contains(message, "no-op plugin") ||
		!strings.Contains(message, "2 sandboxes") || !strings.Contains(message, "the agent's own pods") {
		t.Errorf("message %q, want the no-op plugin, the number of sandboxes and the agent's pods", message)
	}
	if tn.read("bin/sluice-cni") != noop {
		t.Error("the executable was not replaced with the no-op executable, which the removal of the agent's pods needs")
	}
	tn.remove("results/net-agent-eth0")
	tn.remove("results/net-hook-eth0")
	tn.uninstall()
	tn.wantRestored(before)
}

// TestUninstallWaitsForOtherSandboxes checks that Uninstall waits for foreign sandboxes, whatever
// the names of their pods are.
func TestUninstallWaitsForOtherSandboxes(t *testing.T) {
	tn := newTestNode(t)
	tn.put("conf/10-a.conflist", list("calico"))
	tn.mustBeInstalled(tn.reconcile())
	tn.cacheResultWithArgs("agent", podArgs("istio-system", "sluice-node-x2k4n"), "calico", "sluice-cni")
	tn.cacheResultWithArgs("hostile", podArgs("shop", "sluice-node-x2k4n"), "calico", "sluice-cni")
	tn.uninstall() // from now on no sandbox is created with the old configuration
	var containerRuntime sync.WaitGroup
	containerRuntime.Go(func() {
		<-time.After(300 * time.Millisecond)
		tn.remove("results/net-hostile-eth0")
	})
	report, err := tn.node().Uninstall(t.Context(), time.Minute)
	containerRuntime.Wait()
	if err != nil || len(report.Left) != 1 || report.Left[0].References != 1 ||
		report.Left[0].AgentPods != 1 {
		t.Errorf("the report is %+v, error %v; want only the sandbox of the agent's pod", report, err)
	}
}

func TestLeftoverGivesTheReasons(t *testing.T) {
	for want, l := range map[string]node.Leftover{
		"/bin/x is kept because the removal of 2 sandboxes needs it": {
			Path: "/bin/x", References: 2,
		},
		"/bin/x is kept because /conf/a names it": {Path: "/bin/x", NamedBy: "/conf/a"},
		"/bin/x was replaced with a no-op plugin that rejects ADD, and is kept because the removal of 3 sandboxes needs it, including 1 of the agent's own pods": {
			Path: "/bin/x", References: 3, AgentPods: 1, Noop: true,
		},
		"/bin/x was replaced with a no-op plugin that rejects ADD, and is kept because the removal of 1 sandbox " +
			"of the agent's own pods, which end after the agent, needs it, and because /conf/a names it; " +
			"pods that use this configuration do not start until the plugin is removed from it": {
			Path: "/bin/x", References: 1, AgentPods: 1, NamedBy: "/conf/a", Noop: true,
		},
		"/bin/x was replaced with a no-op plugin that rejects ADD, and is kept because " +
			"it is unknown whether sandboxes need it for their removal (permission denied)": {
			Path: "/bin/x", ReferencesErr: os.ErrPermission, Noop: true,
		},
		"/bin/x is kept because it is unknown whether a configuration names it (permission denied)": {
			Path: "/bin/x", UnreadErr: os.ErrPermission,
		},
	} {
		if got := l.String(); got != want {
			t.Errorf("%+v: got  %s\nwant %s", l, got, want)
		}
	}
}
