package agent_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	protocol "github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// bypassed is the prefix of running.reasons(observe.Runtime) while the runtime bypasses the plugin.
const bypassed = "false the runtime bypasses the plugin: it created the sandbox of pod default/web at "

// checkBypassed checks that the agent reports a bypass to Prometheus, to the readiness probe and in
// an event, and that the node keeps its start-up taint.
func (r *running) checkBypassed() {
	r.t.Helper()
	r.until("the bypass is reported", func() bool {
		return strings.HasPrefix(r.reasons(observe.Runtime), bypassed)
	})
	if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 503 {
		r.t.Errorf("/readyz during a bypass: %d %s, want 503", code, text)
	}
	if _, text := r.get("MONITORING_PORT", "/metrics"); !strings.Contains(text, "\nsluice_chain_bypassed 1\n") {
		r.t.Error("sluice_chain_bypassed is not 1")
	}
	r.until("an event about the bypass is sent", func() bool {
		return strings.Contains(r.lastMessage("PluginBypassed"), " pod default/web at ")
	})
}

// TestABypassOutlastsTheAgent checks that a node on which an earlier agent has detected a bypass
// is not ready until the runtime calls the plugin for a pod.
func TestABypassOutlastsTheAgent(t *testing.T) {
	pod := netnstest.New(t)
	tn := newTestNode(t)
	tn.addTaints()
	const web = `
metadata: {name: web, uid: "1", annotations: {sidecar.istio.io/status: "{}"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}`
	tn.Put(web)
	now := time.Now().UTC()
	tn.writeFile("run/bypass.json", fmt.Sprintf(
		`{"pod": "default/web", "uid": "0", "created": %q, "since": %q, "pods": 1}`,
		now.Add(-10*time.Second).Format(time.RFC3339), now.Add(-time.Minute).Format(time.RFC3339)))
	r := tn.run(nil)
	r.until("all other parts are ready", func() bool {
		parts := r.readiness().Parts
		return len(parts) > 0 && !slices.ContainsFunc(parts, func(p observe.Part) bool {
			return p.Ready == (p.Name == observe.Runtime)
		})
	})
	r.checkBypassed()
	if got := tn.Taints(); got != "["+startupTaint+","+otherTaint+"]" {
		t.Errorf("taints during a bypass: %s, want all", got)
	}
	tn.add(pod)
	tn.Put(web + "\nstatus: {phase: Running, podIP: 10.1.0.7}")
	r.waitReady()
	r.until("an event about the end of the bypass is sent", func() bool {
		return tn.lastEvent() == "Installed"
	})
	if _, err := os.Stat(tn.path("run/bypass.json")); !os.IsNotExist(err) {
		t.Errorf("the stored bypass: %v, want that it does not exist", err)
	}
	r.end()
}

// TestAPodThatStartsWithoutThePluginMakesTheNodeNotReady checks that a pod for which the runtime
// did not call the plugin makes the node not ready if the plugin is in the chain, and that the pod
// is redirected.
func TestAPodThatStartsWithoutThePluginMakesTheNodeNotReady(t *testing.T) {
	t.Parallel() // mostly waits
	const (
		sidecar = `
metadata: {name: web, uid: "1", annotations: {sidecar.istio.io/status: "{}"}}
spec: {nodeName: node-1, containers: [{name: app}, {name: istio-proxy, args: [proxy, sidecar]}]}
status: {phase: Running, podIP: 10.1.0.7}`
		ambient = `
metadata: {name: web, uid: "1", labels: {istio.io/dataplane-mode: ambient}}
spec: {nodeName: node-1, serviceAccountName: shop, containers: [{name: app}]}
status: {phase: Running, podIP: 10.1.0.7}`
	)
	for _, row := range []struct {
		name, pod, variable, value string
		reported                   bool // the plugin has reported an ADD
		bypass                     bool
	}{
		{"the plugin is in the chain", sidecar, "CHAINED_CNI_PLUGIN", "true", false, true},
		{"the plugin is not in the chain", sidecar, "CHAINED_CNI_PLUGIN", "false", false, false},
		{"the record of the ADD could not be stored", sidecar, "CHAINED_CNI_PLUGIN", "true", true, false},
		{"a pod in ambient mode", ambient, "AMBIENT_ENABLED", "true", false, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			netnstest.RequireRoot(t)
			t.Parallel() // the runtime has 5 s for reading a new chain
			tn := newTestNode(t)
			tn.env[row.variable] = row.value
			tn.env["ZTUNNEL_UDS_ADDRESS"] = tn.path("z/z.sock")
			tn.env["SLUICE_MOUNTED_PROC_DIR"] = tn.startNodeProcess(netnstest.New(t))
			tn.env["SLUICE_MOUNTED_NETNS_DIR"] = tn.path("netns")
			r := tn.run(nil)
			r.waitReady()
			ready := time.Now()
			r.until("the runtime has read the chain", func() bool { return time.Since(ready) > 6*time.Second })
			ns, _ := tn.addNetNS()
			if row.reported {
				if err := tn.client().Report(protocol.Add{
					Result: protocol.AddSucceeded, Decision: "redirect", Reason: "mesh-pod", Backend: "nft",
					Namespace: "default", Name: "web", UID: "1",
				}); err != nil {
					t.Fatal(err)
				}
			}
			tn.cacheResult("web", "1")
			tn.Put(row.pod)
			r.until("the pod is redirected", func() bool { return backendsWithRules(t, ns) == 1 })
			if row.bypass {
				r.checkBypassed()
			} else {
				r.until("an event about the pod is sent", func() bool {
					return slices.ContainsFunc(tn.Events(), func(e apiservertest.Event) bool {
						return e.Reason == "RedirectRepaired"
					})
				})
				if text := r.reasons(observe.Runtime); !r.readiness().Ready {
					t.Errorf("the part runtime is %s, want the node ready", text)
				}
			}
			r.end()
		})
	}
}
