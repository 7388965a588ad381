package retire_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/retire"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/plugin/apiservertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var name = cluster.Name{Namespace: apiservertest.Namespace, Name: apiservertest.DaemonSet}

const (
	beingDeleted = `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`
	elsewhere    = `{"spec":{"template":{"spec":{"nodeSelector":{"role":"edge"}}}}}`
)

// A testNode is a node with an API server and a decider.
type testNode struct {
	*apiservertest.Server
	client  *cluster.Client
	decider *retire.Decider
}

func newTestNode(t *testing.T) *testNode {
	t.Helper()
	tn := &testNode{Server: apiservertest.StartForAgent(t)}
	api, err := apiclient.New(apiclient.Options{
		Server: tn.URL(), TokenFile: tn.TokenFile(), CAFile: tn.CAFile(),
	})
	if err != nil {
		t.Fatal(err)
	}
	tn.client = cluster.New(api)
	t.Cleanup(tn.client.Close)
	tn.decider = tn.newDecider(20 * time.Second)
	return tn
}

// shortTimeout is the time limit of rows in which the API server never returns the objects.
const shortTimeout = 2 * time.Second

// newDecider returns a decider with a time limit for its requests.
func (tn *testNode) newDecider(timeout time.Duration) *retire.Decider {
	return retire.New(retire.Options{
		Client: tn.client, DaemonSet: name, NodeName: apiservertest.Node, Timeout: timeout,
	})
}

// TestDecide checks that the plugin is removed only if the API server confirms the reason.
func TestDecide(t *testing.T) {
	for _, tc := range []struct {
		name      string
		daemonSet string
		then      func(*testNode)
		remove    bool
		reason    string
	}{
		{"a rolling update, or a reboot", `{}`, nil, false, "another agent follows"},
		{
			"the DaemonSet is being deleted in the foreground", beingDeleted, nil, true,
			"is being deleted",
		},
		{"the DaemonSet is deleted", "", nil, true, "does not exist"},
		{"the node is no longer selected", elsewhere, nil, true, "no longer selects node node-1"},
		{
			"an affinity that is not supported", `{"spec":{"template":{"spec":{"affinity":{"nodeAffinity":
			{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Like"}]}]}}}}}}}`,
			nil, false, "not known",
		},
		{"the permissions are missing", "", func(tn *testNode) { tn.RefuseDaemonSets(403) }, false, "403"},
		{"the token is rejected", "", func(tn *testNode) {
			tn.SetToken("another")
		}, false, "401"},
		{"the API server fails", "", func(tn *testNode) {
			tn.RefuseDaemonSets(500)
			tn.decider = tn.newDecider(shortTimeout)
		}, false, "500"},
		{"a load balancer without an API server answers 404", `{}`, func(tn *testNode) {
			tn.Always(apiservertest.Reply(404, "text/html", "<h1>no server</h1>"))
			tn.decider = tn.newDecider(shortTimeout)
		}, false, "404"},
		{"the API server does not serve DaemonSets yet", `{}`, func(tn *testNode) {
			tn.Always(apiservertest.Status(404, "the server could not find the requested resource"))
			tn.decider = tn.newDecider(shortTimeout)
		}, false, "404"},
		{"a proxy answers with another object", `{}`, func(tn *testNode) {
			tn.Always(apiservertest.Reply(200, "application/json", "{}"))
			tn.decider = tn.newDecider(shortTimeout)
		}, false, "not the expected object"},
		{"the API server is unavailable", "", func(tn *testNode) {
			tn.Stop()
			tn.decider = tn.newDecider(shortTimeout)
		}, false, "an agent may follow on this node"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // errors are retried after seconds
			tn := newTestNode(t)
			tn.SetDaemonSet(tc.daemonSet)
			if tc.then != nil {
				tc.then(tn)
			}
			v := tn.decider.Decide(t.Context())
			if v.Remove != tc.remove || !strings.Contains(v.Reason, tc.reason) {
				t.Errorf("remove: %v, because %s; want %v, because %q", v.Remove, v.Reason, tc.remove,
					tc.reason)
			}
		})
	}
}

// TestObservedDaemonSetDecides checks that the last observed state of the DaemonSet is used if the
// permissions have been removed since, as helm uninstall does.
func TestObservedDaemonSetDecides(t *testing.T) {
	for _, tc := range []struct {
		name   string
		seen   []string
		remove bool
	}{
		{"the DaemonSet was deleted", []string{""}, true},
		{"the DaemonSet is being deleted", []string{beingDeleted}, true},
		{"the DaemonSet was deleted and created again", []string{"", `{}`}, false},
		{"the DaemonSet exists", []string{`{"spec":{}}`}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel() // errors are retried after seconds
			tn := newTestNode(t)
			broken := make(chan error, 10)
			decider := retire.New(retire.Options{
				Client: tn.client, DaemonSet: name, NodeName: apiservertest.Node,
				WatchFailed: func(err error) { broken <- err },
			})
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() { decider.Run(ctx) })
			<-tn.Watching
			for _, set := range tc.seen {
				tn.SetDaemonSet(set)
			}
			tn.RefuseDaemonSets(403)
			if err := <-broken; !cluster.IsRefused(err) {
				t.Fatalf("the watch reports %v, want a refusal", err)
			}
			v := decider.Decide(t.Context())
			if v.Remove != tc.remove {
				t.Errorf("remove: %v, because %s; want %v", v.Remove, v.Reason, tc.remove)
			}
			cancel()
			group.Wait()
		})
	}
}

func TestEverywhere(t *testing.T) {
	t.Run("the DaemonSet is deleted in the foreground, and all agents are awaited", func(t *testing.T) {
		tn := newTestNode(t)
		tn.SetAgents("sluice-node-a", "sluice-node-b")
		var reported []string
		err := retire.Everywhere(t.Context(), tn.client, name, func(text string) {
			reported = append(reported, text)
			if len(reported) == 1 {
				tn.SetAgents("sluice-node-b")
			} else {
				tn.SetAgents()
			}
		})
		if err != nil || len(reported) != 2 ||
			!strings.Contains(reported[0], "sluice-node-a, sluice-node-b") {
			t.Errorf("error %v, reported %q; want both agents and then the remaining one", err, reported)
		}
		if d := tn.Deletes(); len(d) != 1 ||
			!strings.Contains(d[0], `"propagationPolicy":"Foreground"`) {
			t.Errorf("deletions %q, want one deletion in the foreground", d)
		}
	})
	t.Run("the agents of a large cluster are listed in pages", func(t *testing.T) {
		tn := newTestNode(t)
		var agents []string
		for i := range 1201 {
			agents = append(agents, fmt.Sprintf("sluice-node-%04d", i))
		}
		tn.SetAgents(agents...)
		var reported string
		if err := retire.Everywhere(t.Context(), tn.client, name, func(text string) {
			reported = text
			tn.SetAgents()
		}); err != nil {
			t.Fatal(err)
		}
		const want = "waiting for agents to end (1201): sluice-node-0000, "
		if !strings.HasPrefix(reported, want) ||
			!strings.HasSuffix(reported, "sluice-node-0009 and 1191 more") {
			t.Errorf("reported %q, want %q, nine more names and the number of the others", reported, want)
		}
		lists := 0
		for _, r := range tn.Requests() {
			if r.Kind() == "list pods" {
				lists++
			}
		}
		if lists != 4 {
			t.Errorf("%d lists of pods, want 3 pages, and 1 after the agents have ended", lists)
		}
	})
	t.Run("a missing DaemonSet is not an error", func(t *testing.T) {
		tn := newTestNode(t)
		tn.SetDaemonSet("")
		if err := retire.Everywhere(t.Context(), tn.client, name, nil); err != nil {
			t.Error(err)
		}
	})
	t.Run("a missing permission is an error", func(t *testing.T) {
		tn := newTestNode(t)
		tn.RefuseDaemonSets(403)
		if err := retire.Everywhere(t.Context(), tn.client, name, nil); !cluster.IsRefused(err) {
			t.Errorf("error %v, want a refusal", err)
		}
	})
	t.Run("the error of a timeout names the remaining agents", func(t *testing.T) {
		tn := newTestNode(t)
		tn.SetAgents("sluice-node-a")
		ctx, cancel := context.WithCancel(t.Context())
		err := retire.Everywhere(ctx, tn.client, name, func(string) { cancel() })
		if err == nil || !strings.Contains(err.Error(), "sluice-node-a") {
			t.Errorf("error %v, want the name sluice-node-a", err)
		}
	})
}
