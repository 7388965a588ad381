package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// apiFaults contains faults of an API server, with the readiness of the part "permissions" during
// the fault. A rejection makes this part not ready, because it does not end by itself; an outage
// leaves the part ready.
var apiFaults = map[string]struct {
	fault       apiservertest.Behavior
	permissions string // prefix of running.reasons(observe.Permissions)
	// hangs is set if requests hang for longer than a test waits. The tests of package podcache
	// cover the consequences.
	hangs bool
}{
	// The reasons name the permission of the agent or of the plugin, depending on which sent the
	// first request.
	"403":     {apiservertest.Forbidden(), "false the ", false},
	"429":     {apiservertest.TooManyRequests("1"), "true ", false},
	"500":     {apiservertest.InternalError(), "true ", false},
	"trickle": {apiservertest.Trickle(time.Second), "true ", true},
}

// maxRequests returns the maximum number of requests of an agent while the API server is faulty:
// each component sends some immediately, and then retries with delays.
func maxRequests(d time.Duration) int { return 30 + 5*int(d/time.Second) }

// TestAgentRecoversFromFaultsOfTheAPIServer checks that the agent reports a fault, and that during
// the fault it retries with delays, keeps the plugin, and serves its cached pods. The agent
// recovers without a restart.
func TestAgentRecoversFromFaultsOfTheAPIServer(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // mostly waits
	for name, f := range apiFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // errors are retried after seconds
			tn := newTestNode(t)
			r := tn.run(nil)
			r.waitReady()
			r.waitPodAccess("earlier")
			earlier := source.Ref{Namespace: "default", Name: "earlier", UID: "earlier"}
			r.until("the pod is cached", func() bool {
				before := tn.countRequests("get pods")
				_, err := tn.client().Pod(t.Context(), earlier)
				return err == nil && tn.countRequests("get pods") == before
			})
			begin, before := time.Now(), len(tn.Requests())
			tn.Fault(f.fault)
			r.until("a request has met the fault", func() bool { return len(tn.Requests()) > before })
			r.until("the fault is reported", func() bool {
				_, text := r.get("MONITORING_PORT", "/metrics")
				lost := strings.Contains(text, "\nsluice_events_lost_total{source=\"pods\"} 1\n")
				permissions := r.reasons(observe.Permissions)
				return lost != f.hangs && strings.HasPrefix(permissions, f.permissions) &&
					(strings.HasPrefix(permissions, "true ") ||
						strings.Contains(permissions, " lacks a permission: "))
			})
			r.until("several requests are sent", func() bool {
				return f.hangs || len(tn.Requests()) >= before+4
			})
			if _, err := tn.client().Pod(t.Context(), earlier); err != nil {
				t.Errorf("the cached pod is not served: %v", err)
			}
			requests := len(tn.Requests()) - before
			if most := maxRequests(time.Since(begin)); requests > most {
				t.Errorf("the agent sent %d requests, want at most %d", requests, most)
			}
			ready := strings.HasPrefix(f.permissions, "true ")
			if r.readiness().Ready != ready {
				t.Errorf("ready: %t, want %t: %v", !ready, ready, r.readiness())
			}
			if !strings.HasPrefix(r.reasons(observe.Configuration), "true ") {
				t.Errorf("the configuration is %s, want ready", r.reasons(observe.Configuration))
			}
			tn.Recover()
			r.waitReady()
			r.waitPodAccess("later")
			r.end()
		})
	}
}

// TestAnAgentThatStartsDuringAFaultKeepsThePlugin checks that an agent that starts during a fault
// is not ready, reports the reason, keeps the plugin that its predecessor has installed, and is
// ready once the API server answers.
func TestAnAgentThatStartsDuringAFaultKeepsThePlugin(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // mostly waits
	for name, f := range apiFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // errors are retried after seconds
			tn := newTestNode(t)
			api := tn.apiOptions()
			first := tn.start(api, nil)
			first.waitReady()
			tn.Fault(f.fault)
			first.end()
			begin, before := time.Now(), len(tn.Requests())
			r := tn.start(api, nil)
			r.until("the missing access is reported", func() bool {
				return strings.HasPrefix(r.reasons(observe.Permissions), "false ") &&
					strings.HasPrefix(r.reasons(observe.Socket), "false ")
			})
			r.until("several requests are sent", func() bool {
				return f.hangs || len(tn.Requests()) >= before+4
			})
			requests := len(tn.Requests()) - before
			if most := maxRequests(time.Since(begin)); requests > most {
				t.Errorf("the agent sent %d requests, want at most %d", requests, most)
			}
			if !strings.Contains(strings.Join(tn.chain(), " "), "sluice-cni") {
				t.Errorf("the plugin was removed: %v", tn.chain())
			}
			tn.Recover()
			r.waitReady()
			r.waitPodAccess("later")
			r.end()
		})
	}
}
