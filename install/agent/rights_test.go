package agent_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
)

const (
	startupTaint = `{"effect":"NoSchedule","key":"cni.istio.io/not-ready"}`
	otherTaint   = `{"effect":"NoSchedule","key":"dedicated","value":"gpu"}`
)

// tainted gives the node a start-up taint that the agent is to remove, and another one.
func (b *testNode) tainted() {
	b.SetTaints("["+startupTaint+","+otherTaint+"]", 0)
	b.env["SLUICE_STARTUP_TAINT"] = "cni.istio.io/not-ready"
}

// Without a right to pods the plugin stays away where each pod would fail because of it, and the
// node is not ready and keeps its taint in any case. Which right is missing is said in the API
// server's own words, and that it has come is noticed soon.
func TestRightsThatAreMissing(t *testing.T) {
	netnstest.RequireRoot(t)
	for _, row := range []struct {
		name, serve string
		forbidden   []string
		missing     []string // the verbs that readiness names
		inserted    bool
	}{
		{"all of them", "true", []string{"get", "list", "watch"}, []string{"get", "list"}, false},
		{
			"all of them, and nothing is served", "false",
			[]string{"get", "list", "watch"},
			[]string{"get"},
			false,
		},
		{
			"to follow pods, so that each is fetched", "true",
			[]string{"list", "watch"},
			[]string{"list"},
			true,
		},
		{
			"to follow pods, for the audit alone", "false",
			[]string{"list", "watch"},
			[]string{"list"},
			true,
		},
		{"to watch pods", "true", []string{"watch"}, []string{"watch"}, true},
		{
			"to get pods, so that only those are known that are followed", "true",
			[]string{"get"},
			[]string{"get"},
			true,
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // what fails is tried again after seconds
			b := newTestNode(t)
			b.tainted()
			b.env["SLUICE_SERVE"] = row.serve
			b.ForbidPods(row.forbidden...)
			r := b.run(nil)
			want := []string{"bridge"}
			if row.inserted {
				want = append(want, "sluice-cni")
			}
			r.until("the rights are named", func() bool {
				text := r.reasons(observe.Rights)
				unnamed := func(verb string) bool {
					return !strings.Contains(text, "cannot "+verb+" resource ")
				}
				return slices.Equal(b.chain(), want) && strings.HasPrefix(text, "false ") &&
					!slices.ContainsFunc(row.missing, unnamed)
			})
			r.until("an event", func() bool { return b.lastEvent() == "RightsMissing" })
			if diff := cmp.Diff(want, b.chain()); diff != "" {
				t.Errorf("chain (-want +got):\n%s", diff)
			}
			if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 503 {
				t.Errorf("%d %s", code, text)
			}
			if got := b.Taints(); got != "["+startupTaint+","+otherTaint+"]" {
				t.Errorf("taints: %s", got)
			}
			b.ForbidPods()
			r.ready()
			r.until("untainted", func() bool { return b.Taints() == "["+otherTaint+"]" })
			if diff := cmp.Diff([]string{"bridge", "sluice-cni"}, b.chain()); diff != "" {
				t.Errorf("chain (-want +got):\n%s", diff)
			}
			r.until("it is over", func() bool { return b.lastEvent() == "Installed" })
			r.end()
		})
	}
}

// The kubeconfig is there a moment before it is known whether pods may be followed, and a taint
// that is gone does not come back.
func TestReadyOnceAllRightsAreKnown(t *testing.T) {
	netnstest.RequireRoot(t)
	b := newTestNode(t)
	answers := []func(){b.HoldPods("list"), b.HoldPods("watch")}
	r := b.run(nil)
	r.until("inserted", func() bool {
		return slices.Contains(b.chain(), "sluice-cni") &&
			strings.HasPrefix(r.reasons(observe.Configuration), "true")
	})
	if text := r.reasons(observe.Rights); r.readiness().Ready ||
		text != "false the node's pods have not been requested yet" {
		t.Errorf("rights: %s", text)
	}
	for _, answer := range answers {
		answer()
	}
	r.ready()
	r.end()
}

// The node's pods may be listed before the API server has said whether the plugin may read pods,
// and a taint that is gone does not come back.
func TestTaintStaysUntilThePluginsRightIsKnown(t *testing.T) {
	netnstest.RequireRoot(t)
	b := newTestNode(t)
	b.tainted()
	release := b.HoldPods("get")
	defer release()
	r := b.run(nil)
	r.until("the node's pods are served", func() bool {
		return slices.Contains(b.chain(), "sluice-cni") &&
			strings.HasPrefix(r.reasons(observe.Socket), "true") &&
			strings.HasPrefix(r.reasons(observe.Configuration), "true")
	})
	if text := r.reasons(observe.Rights); text != "false the agent has not checked yet whether the plugin may read pods" {
		t.Errorf("rights: %s", text)
	}
	b.ForbidPods("get")
	release()
	r.until("the right is named", func() bool {
		return strings.Contains(r.reasons(observe.Rights), "cannot get resource ")
	})
	if got := b.Taints(); got != "["+startupTaint+","+otherTaint+"]" {
		t.Errorf("taints: %s", got)
	}
	r.end()
}

// A right that is taken away closes the way that the agent had, though it still has the pods of
// before.
func TestRightsThatAreTakenAway(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // it waits for seconds
	b := newTestNode(t)
	r := b.run(nil)
	r.ready()
	b.ForbidPods("get", "list", "watch")
	b.ForgetHistory() // ends the watch, as time does
	r.until("not ready", func() bool { return !r.readiness().Ready })
	r.until("the socket is no way", func() bool {
		return strings.HasPrefix(r.reasons(observe.Socket),
			"false cannot watch the node's pods: ")
	})
	b.ForbidPods()
	r.ready()
	r.end()
}

// An API server that is away does not make a node unready that has its pods: none comes without it.
func TestServedPodsOutlastAnOutage(t *testing.T) {
	netnstest.RequireRoot(t)
	t.Parallel() // it waits for seconds
	b := newTestNode(t)
	r := b.run(nil)
	r.ready()
	b.Stop()
	r.until("it is noticed", func() bool {
		_, text := r.get("MONITORING_PORT", "/metrics")
		return strings.Contains(text, "\nsluice_events_lost_total{source=\"pods\"} 1\n")
	})
	if code, text := r.get("SLUICE_HEALTH_PORT", "/readyz"); code != 200 ||
		!strings.Contains(text, "[+] socket") {
		t.Errorf("%d %s", code, text)
	}
	r.end()
}
