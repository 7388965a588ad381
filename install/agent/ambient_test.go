package agent_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/ztunnel/ztunneltest"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/rules"
)

// startNodeProcess starts a process in a network namespace, and returns the path of a /proc in
// which this process is both process 1 of the node and the kubelet.
func (tn *testNode) startNodeProcess(ns *netns.NS) string {
	tn.t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		tn.t.Skip(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		tn.t.Fatal(err)
	}
	tn.writeFile("image/kubelet", string(data))
	if err := os.Chmod(tn.path("image/kubelet"), 0o755); err != nil {
		tn.t.Fatal(err)
	}
	cmd := exec.Command(tn.path("image/kubelet"), "1000")
	if err := ns.Do(cmd.Start); err != nil {
		tn.t.Fatal(err)
	}
	tn.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	proc := tn.path("proc")
	err = os.MkdirAll(proc, 0o755)
	if err == nil {
		err = os.Symlink(fmt.Sprintf("/proc/%d", cmd.Process.Pid), filepath.Join(proc, "1"))
	}
	if err != nil {
		tn.t.Fatal(err)
	}
	return proc
}

// backendsWithRules returns the number of backends that have rules in a namespace.
func backendsWithRules(t testing.TB, ns *netns.NS) int {
	t.Helper()
	list, err := compat.InstalledBackends(ns)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// checkHostRules checks that the namespace has the node's rules, as the agent describes them.
func (tn *testNode) checkHostRules(host *netns.NS, backend compat.Backend) {
	tn.t.Helper()
	h, err := protocol.Caller{Socket: protocol.SocketIn(tn.path("run"))}.Host(tn.t.Context())
	if err != nil {
		tn.t.Fatal(err)
	}
	ns, err := netns.Open(h.NetNS)
	if err != nil {
		tn.t.Fatal(err)
	}
	defer ns.Close()
	rs, err := rules.CompileAmbientHost(h.Parameters)
	if err != nil {
		tn.t.Fatal(err)
	}
	found, err := backend.Check(host, rs, compat.Snapshot{})
	if err != nil || len(found.Differences) > 0 || ns.ID() != host.ID() || h.Backend != string(backend.Name()) ||
		len(h.Parameters.Pods) != 1 {
		tn.t.Errorf("the agent describes the node's rules as %+v: differences %v, error %v; "+
			"want no difference and one pod", h, found.Differences, err)
	}
}

// TestPodEntersAndLeavesAmbientMode covers the plugin's ADD of a pod in ambient mode, the node's
// rules, and the removal of both.
func TestPodEntersAndLeavesAmbientMode(t *testing.T) {
	t.Parallel() // mostly waits
	pod, host := netnstest.NewPod(t), netnstest.New(t)
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"], tn.env["ZTUNNEL_UDS_ADDRESS"] = "true", tn.path("z/z.sock")
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.startNodeProcess(host)
	const object = `
metadata: {name: web, uid: "1", labels: {istio.io/dataplane-mode: ambient}, annotations: {%s}}
spec: {nodeName: node-1, serviceAccountName: shop, containers: [{name: app}]}
status: {phase: Running, podIP: 10.1.0.7}`
	tn.Put(strings.ReplaceAll(fmt.Sprintf(object, ""), "status: {phase: Running, podIP: 10.1.0.7}", ""))
	r := tn.run(nil)
	r.waitReady()
	z := ztunneltest.Start(t, tn.path("z/z.sock"), nil)
	z.Wait(t, "snapshot")
	tn.add(pod)
	backend, err := compat.Choose(compat.BackendNFT)
	if err != nil {
		t.Fatal(err)
	}
	rs, err := rules.CompileAmbient(rules.DefaultAmbient())
	if err != nil {
		t.Fatal(err)
	}
	found, err := backend.Check(pod, rs, compat.Snapshot{})
	if err != nil || len(found.Differences) > 0 || z.Pods()["1"] != pod.ID() || backendsWithRules(t, host) != 1 {
		t.Fatalf("after ADD: error %v, differences %v, ztunnel's pods %v; %d backends have rules of "+
			"the node, want 1", err, found.Differences, z.Pods(), backendsWithRules(t, host))
	}
	const patch = `PATCH /api/v1/namespaces/default/pods/web/status ` +
		`{"metadata":{"annotations":{"ambient.istio.io/redirection":%s},"uid":"1"}}`
	patched := func(value string) func() bool {
		return func() bool { return slices.Contains(tn.PodChanges(), fmt.Sprintf(patch, value)) }
	}
	r.until("the annotation is enabled", patched(`"enabled"`))
	tn.Put(fmt.Sprintf(object, "ambient.istio.io/redirection: enabled"))
	r.until("the metrics contain the pod and its ADD", func() bool {
		_, text := r.get("MONITORING_PORT", "/metrics")
		return strings.Contains(text, "\nztunnel_connected 1\n") &&
			strings.Contains(text, "\nsluice_ambient_pods{state=\"enrolled\"} 1\n") &&
			strings.Contains(text, "\nsluice_pods{state=\"redirected\"} 1\n") &&
			strings.Contains(text, "\nsluice_adds_total{backend=\"nft\",decision=\"ambient\",result=\"success\"} 1\n")
	})
	if _, text := r.get("MONITORING_PORT", "/metrics"); !strings.Contains(text, "\nsluice_host_rules_in_place 1\n") ||
		!strings.Contains(text, "\nsluice_ztunnel_pods_unacknowledged 0\n") {
		t.Errorf("the metrics lack the node's rules or the number of unacknowledged pods:\n%s", text)
	}
	tn.checkHostRules(host, backend)
	s := r.status()
	for name, want := range map[string]string{
		"ambient": "ok: 1 enrolled | ", "ztunnel": "ok: 1 connected; 1 of 1 pods acknowledged | ",
		"host": "ok: the node's rules for probes are in place (nft, 1 pods), compared ",
		"pods": "ok: 1 redirected | ",
	} {
		if got := topic(s, name); !strings.HasPrefix(got, want) {
			t.Errorf("the topic %s is %q, want the prefix %q", name, got, want)
		}
	}
	if l := tn.locate(); l.Decision != "ambient" || l.Ambient == nil || l.Backend != "nft" {
		t.Errorf("the location is %+v, want a pod in ambient mode with backend nft", l)
	}

	for _, tc := range []struct {
		name           string
		ns             *netns.NS
		reason, metric string
	}{
		{"the node's rules", host, "HostRulesChanged", "sluice_host_rules_events_total{event=\"repaired\"} 1"},
		{"the pod's rules", pod, "RedirectRepaired", "sluice_drifts_total{kind=\"absent\"} 1"},
	} {
		if err := tc.ns.Do(func() error { return exec.Command("nft", "flush", "ruleset").Run() }); err != nil {
			t.Fatal(err)
		}
		r.until(tc.name+" are back", func() bool { return backendsWithRules(t, tc.ns) == 1 })
		r.until("an event about "+tc.name+" is sent", func() bool {
			return slices.ContainsFunc(tn.Events(), func(e apiservertest.Event) bool {
				return e.Reason == tc.reason && strings.Contains(e.Message, "restored")
			})
		})
		_, text := r.get("MONITORING_PORT", "/metrics")
		if !strings.Contains(text, "\n"+tc.metric+"\n") {
			t.Errorf("the metrics do not contain %s", tc.metric)
		}
	}

	tn.SetDaemonSet("")
	r.end()
	if backendsWithRules(t, pod) != 0 || backendsWithRules(t, host) != 0 || !patched("null")() {
		t.Errorf("after uninstallation %d backends have rules in the pod and %d on the node, want none; "+
			"changes of pods %v, want a removed annotation", backendsWithRules(t, pod),
			backendsWithRules(t, host), tn.PodChanges())
	}
}

// TestStatusContainsErrorsOfZtunnelsSocket checks that, if the agent cannot create ztunnel's
// socket, the status contains the error to which the topic ztunnel refers.
func TestStatusContainsErrorsOfZtunnelsSocket(t *testing.T) {
	host := netnstest.New(t)
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"], tn.env["ZTUNNEL_UDS_ADDRESS"] = "true", tn.path("z/z.sock")
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.startNodeProcess(host)
	tn.writeFile("z", "not a directory")
	r := tn.run(nil)
	r.waitReady()
	if got := topic(r.status(), "ztunnel"); !strings.Contains(got, "see the errors below") {
		t.Errorf("the topic ztunnel is %q, want a reference to the errors", got)
	}
	r.until("the status contains the error", func() bool {
		return slices.ContainsFunc(r.status().Errors, func(l protocol.LoggedError) bool {
			return strings.Contains(l.Error, tn.path("z"))
		})
	})
	r.end()
}

// TestAmbientModeNeedsTheSocket checks that ambient mode without the plugin's socket is an error:
// the agent could not enroll pods.
func TestAmbientModeNeedsTheSocket(t *testing.T) {
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"], tn.env["SLUICE_SERVE"] = "true", "false"
	log, err := logs.New("debug", true, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	_, err = agent.New(agent.Options{Settings: readSettings(t, tn.env), API: tn.apiOptions(), Log: log})
	if err == nil || !strings.Contains(err.Error(), "AMBIENT_ENABLED: needs SLUICE_SERVE") {
		t.Errorf("error %v, want that AMBIENT_ENABLED needs SLUICE_SERVE", err)
	}
}

// TestHostRulesOfAnEarlierAgentAreRemoved checks that an agent without ambient mode removes the
// node's rules for probes that an earlier agent with ambient mode has installed.
func TestHostRulesOfAnEarlierAgentAreRemoved(t *testing.T) {
	host := netnstest.New(t)
	tn := newTestNode(t)
	tn.env["AMBIENT_ENABLED"], tn.env["ZTUNNEL_UDS_ADDRESS"] = "true", tn.path("z/z.sock")
	tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.startNodeProcess(host)
	r := tn.run(nil)
	r.waitReady()
	r.until("the node has rules", func() bool { return backendsWithRules(t, host) == 1 })
	r.end() // the DaemonSet exists: an upgrade
	if backendsWithRules(t, host) != 1 {
		t.Fatal("the stop for an upgrade has removed the node's rules")
	}
	tn.env["AMBIENT_ENABLED"] = "false"
	r = tn.run(nil)
	r.until("the node has no rules", func() bool { return backendsWithRules(t, host) == 0 })
	r.waitReady()
	r.end()
}
