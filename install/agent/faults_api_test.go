package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

// apiFaults are what an API server may do to a node agent, and what readiness says of the rights
// then: an answer that refuses makes the node unready, since it does not pass by itself, an outage
// does not.
var apiFaults = map[string]struct {
	fault  apiservertest.Behaviour
	rights string
	// Questions hang for longer than a test waits. Package podcache has the tests of what comes of
	// that.
	hangs bool
}{
	// The agent's rights or the plugin's: what is asked first.
	"403":     {apiservertest.Forbidden(), "false the ", false},
	"429":     {apiservertest.TooManyRequests("1"), "true ", false},
	"500":     {apiservertest.InternalError(), "true ", false},
	"trickle": {apiservertest.Trickle(time.Second), "true ", true},
}

// maxRequests returns the maximum number of requests of an agent while the API server is faulty:
// its parts a few at once, and then with pauses.
func maxRequests(d time.Duration) int { return 30 + 5*int(d/time.Second) }

// While the API server is faulty the agent says so, asks with pauses, keeps the plugin, and serves
// the pods that it has. It recovers without a new start.
func TestFaultsOfTheAPIServer(t *testing.T) {
	netnstest.RequireRoot(t)
	for name, f := range apiFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // what fails is tried again after seconds
			b := newTestNode(t)
			r := b.run(nil)
			r.ready()
			begin, before := time.Now(), len(b.Requests())
			b.Fault(f.fault)
			r.until("it is noticed", func() bool {
				_, text := r.get("MONITORING_PORT", "/metrics")
				lost := strings.Contains(text, "\nsluice_events_lost_total{source=\"pods\"} 1\n")
				rights := r.reasons(observe.Rights)
				return lost != f.hangs && strings.HasPrefix(rights, f.rights) &&
					(strings.HasPrefix(rights, "true ") ||
						strings.Contains(rights, " lacks a permission: "))
			})
			r.until("it is asked again", func() bool {
				return f.hangs || len(b.Requests()) >= before+4
			})
			asked := len(b.Requests()) - before
			if most := maxRequests(time.Since(begin)); asked > most {
				t.Errorf("%d requests, more than %d", asked, most)
			}
			ready := strings.HasPrefix(f.rights, "true ")
			if r.readiness().Ready != ready {
				t.Errorf("ready: %t, want %t: %v", !ready, ready, r.readiness())
			}
			if !strings.HasPrefix(r.reasons(observe.Configuration), "true ") {
				t.Errorf("the plugin: %s", r.reasons(observe.Configuration))
			}
			b.Recover()
			r.ready()
			r.answers("later")
			r.end()
		})
	}
}

// An agent that starts while the API server is away or faulty is not ready, says why, keeps the
// plugin that its predecessor has put there, and is ready once the API server answers.
func TestAStartDuringAFault(t *testing.T) {
	netnstest.RequireRoot(t)
	for name, f := range apiFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // what fails is tried again after seconds
			b := newTestNode(t)
			config := b.config()
			first := b.start(config, nil)
			first.ready()
			b.Fault(f.fault)
			first.end()
			begin, before := time.Now(), len(b.Requests())
			r := b.start(config, nil)
			r.until("it says what is missing", func() bool {
				return strings.HasPrefix(r.reasons(observe.Rights), "false ") &&
					strings.HasPrefix(r.reasons(observe.Socket), "false ")
			})
			r.until("it is asked", func() bool { return f.hangs || len(b.Requests()) >= before+4 })
			asked := len(b.Requests()) - before
			if most := maxRequests(time.Since(begin)); asked > most {
				t.Errorf("%d requests, more than %d", asked, most)
			}
			if !strings.Contains(strings.Join(b.chain(), " "), "sluice-cni") {
				t.Errorf("the plugin is gone: %v", b.chain())
			}
			b.Recover()
			r.ready()
			r.answers("later")
			r.end()
		})
	}
}
