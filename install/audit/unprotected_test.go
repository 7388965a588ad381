package audit_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// TestUnprotectedPodIsRepairedInPlace checks that a pod that started before the installation of the
// plugin is redirected as soon as it is found, before it fails.
func TestUnprotectedPodIsRepairedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			env.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		reported := env.takeEvents()
		if !rules.Equal(rules.MustCompile(env.redirect(web)), s.rules) ||
			env.states() != "1 redirected" || reported != "RedirectRepaired" {
			t.Errorf("applied %d times, %s, events %q; want the rules of ADD, 1 redirected, "+
				"event RedirectRepaired", s.applied, env.states(), reported)
		}
		if env.metric("sluice_repairs_total{race,repair,success}") != 1 ||
			env.metric("istio_cni_repair_pods_repaired_total{repair,success}") != 1 ||
			env.metric("sluice_repair_duration_seconds_count{race}") != 1 {
			t.Errorf("counted %v, want one repair because of the race", env.counted)
		}
		// Later repairs, even those by the next agent, use the parameters that were applied first,
		// whatever the annotations are.
		web.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "81"
		for _, restart := range []func(){env.restart, func() {}} {
			restart()
			env.put(web, running)
			settle()
			applied := s.applied
			env.flush(s)
			if s.applied != applied+1 ||
				env.metric("sluice_repairs_total{drift,repair,success}") == 0 {
				t.Errorf("applied %d times, counted %v; want once, a repair because of drift", s.applied-applied,
					env.counted)
			}
			delete(web.Metadata.Annotations, "traffic.sidecar.istio.io/excludeOutboundPorts")
			if !rules.Equal(rules.MustCompile(env.redirect(web)), s.rules) {
				t.Error("the pod was repaired with other parameters than before")
			}
		}
		env.delete(web)
		advance(time.Second)
		if kept, err := env.options.Repairs.List(); len(kept) > 0 || err != nil {
			t.Errorf("stored repairs of a deleted pod: %v, error %v, want none", kept, err)
		}
	})
}

// TestAMissingSandboxIsSearchedForAgain checks that a missing sandbox is searched for again,
// immediately when the pod changes, and that the pod is not counted before it has an address.
func TestAMissingSandboxIsSearchedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		env := startTestEnv(t, nil, func(env *testEnv) { env.put(web, podcache.PodStatus{Phase: "Pending"}) })
		advance(10 * time.Minute)
		// The delays between searches double from a quarter of a second to a minute.
		if env.states() != "" || env.searches > 25 {
			t.Errorf("%s, %d searches; want no state, at most 25", env.states(), env.searches)
		}
		s := env.addSandbox(web)
		web.Status.PodIP = "10.0.0.7"
		env.put(web, podcache.PodStatus{Phase: "Pending"})
		settle()
		if s.applied != 1 || env.states() != "1 redirected" {
			t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied, env.states())
		}
	})
}

// TestARunningPodWithoutASandboxIsUnknown checks that a running pod without a sandbox is counted as
// unknown, and that searches are rare.
func TestARunningPodWithoutASandboxIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		core, lines := observer.New(zap.InfoLevel)
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.options.Log = zap.New(core)
			env.put(web, running)
		})
		advance(time.Hour)
		if n := lines.FilterField(zap.Error(errNoSandbox)).Len(); n < 1 || n > 12 {
			t.Errorf("the reason is logged %d times in an hour, want 1 to 12", n)
		}
		// The delays between searches double from a quarter of a second to a minute.
		reported := env.takeEvents()
		if env.states() != "1 unknown" || env.searches > 80 || reported != "" {
			t.Errorf("%s, %d searches, events %q; want 1 unknown, at most 80, no event", env.states(),
				env.searches, reported)
		}
	})
}

func TestANewSandboxIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var old *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { old = env.addRedirected(web) })
		env.mu.Lock()
		delete(env.namespaces, "/run/netns/"+old.id.String())
		env.mu.Unlock()
		s := env.addRedirected(web)
		env.set(func() { s.rules = rules.Ruleset{} })
		advance(time.Second)
		if s.applied != 1 || env.states() != "1 redirected" {
			t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied, env.states())
		}
		env.flush(s)
		if s.applied != 2 {
			t.Error("events of the new sandbox are not received")
		}
	})
}

func TestPodsThatNeedNoRedirectionAreNotAudited(t *testing.T) {
	for name, prepare := range map[string]func(*testEnv, *decide.Pod) podcache.PodStatus{
		"a pod without a record that is being deleted": func(*testEnv, *decide.Pod) podcache.PodStatus {
			return podcache.PodStatus{Phase: "Running", Deleted: true}
		},
		"a pod that has succeeded": func(*testEnv, *decide.Pod) podcache.PodStatus {
			return podcache.PodStatus{Phase: "Succeeded"}
		},
		"a pod that has failed": func(*testEnv, *decide.Pod) podcache.PodStatus {
			return podcache.PodStatus{Phase: "Failed"}
		},
		"a pod in the node's network namespace": func(_ *testEnv, p *decide.Pod) podcache.PodStatus {
			p.Spec.HostNetwork = true
			return running
		},
		"a pod without a proxy": func(_ *testEnv, p *decide.Pod) podcache.PodStatus {
			p.Spec.Containers = nil
			return running
		},
		"a pod with istio-init": func(_ *testEnv, p *decide.Pod) podcache.PodStatus {
			p.Spec.InitContainers = []decide.Container{{Name: "istio-init"}}
			return running
		},
		"a pod that has opted out": func(_ *testEnv, p *decide.Pod) podcache.PodStatus {
			p.Metadata.Labels = map[string]string{"sidecar.istio.io/inject": "false"}
			return running
		},
		"a pod that ADD has not redirected": func(env *testEnv, p *decide.Pod) podcache.PodStatus {
			env.record(p, nil)
			return running
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) {
					s = env.addSandbox(web)
					env.put(web, prepare(env, web))
				})
				advance(10 * time.Minute)
				reported := env.takeEvents()
				if s.checked+s.applied > 0 || env.states() != "" || reported != "" {
					t.Errorf("compared %d times, applied %d times, %q, events %q; "+
						"want never, no state, no event", s.checked, s.applied, env.states(), reported)
				}
			})
		})
	}
}

// TestAPodOfIstioCNIIsNotChanged checks that a pod that istio-cni has redirected is not changed.
// All its rules are inspected, even those with the names of Sluice's rules.
func TestAPodOfIstioCNIIsNotChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			s.istio = []string{"chain ip nat ISTIO_OUTPUT"}
			env.put(web, broken(time.Now()))
		})
		advance(10 * time.Minute)
		reported, requests := env.takeEvents(), env.takeRequests()
		if s.applied > 0 || env.states() != "1 redirected" || reported+requests != "" {
			t.Errorf("applied %d times, %s, events %q, requests %q; want never, 1 redirected, no event, no request",
				s.applied, env.states(), reported, requests)
		}
		if s.inspected == 0 || s.inspectedEqual {
			t.Errorf("inspected %d times, with rules equal to Sluice's: %t; want at least once, false",
				s.inspected, s.inspectedEqual)
		}
	})
}

// TestInvalidParametersAreReported checks that a pod with invalid parameters is reported, and not
// repaired.
func TestInvalidParametersAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "80a"
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			env.put(web, running)
		})
		if s.applied > 0 || env.states() != "1 unprotected" || len(env.events) != 1 ||
			!strings.Contains(env.events[0].Message, `"80a"`) {
			t.Errorf("applied %d times, %s, events %+v; want never, 1 unprotected, one event with the value", s.applied,
				env.states(), env.events)
		}
	})
}

// TestActionsHaveThePrecedenceOfIstioCNI checks the action for a pod that started without the
// plugin. The actions have the same precedence as in istio-cni. Deletion and labeling require a
// failed validation.
func TestActionsHaveThePrecedenceOfIstioCNI(t *testing.T) {
	const inPlace, deleting, labeling, nothing = "repaired", "delete shop/web uid-web@1",
		"label shop/web uid-web cni.istio.io/uninitialized=true", ""
	for _, row := range []struct {
		name        string
		environment map[string]string
		failed      string // the action for a pod that has failed
		notFailed   string // the action for a pod that has not failed
	}{
		{"the chart's defaults", nil, inPlace, inPlace},
		{
			"repair takes precedence", environment("REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true"),
			inPlace, inPlace,
		},
		{
			"deletion takes precedence over labeling",
			environment("REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true"),
			deleting, nothing,
		},
		{"labeling only", environment("REPAIR_REPAIR_PODS=false REPAIR_LABEL_PODS=true"), labeling, nothing},
		{"no action", environment("REPAIR_REPAIR_PODS=false"), nothing, nothing},
		{"repair is disabled", environment("REPAIR_ENABLED=false REPAIR_DELETE_PODS=true"), nothing, nothing},
		{
			"deletion without entering namespaces",
			environment("SLUICE_AUDIT=false REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true"),
			deleting, nothing,
		},
		{"repair without audit", environment("SLUICE_AUDIT=false"), inPlace, inPlace},
		{
			"the label selector does not match the pod",
			environment("REPAIR_LABEL_SELECTORS=tier=web REPAIR_DELETE_PODS=true"), nothing, nothing,
		},
	} {
		for _, fails := range []bool{true, false} {
			want := row.notFailed
			if fails {
				want = row.failed
			}
			t.Run(fmt.Sprintf("%s, the pod fails: %t", row.name, fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					web := meshPod("web")
					var s *fakeNamespace
					env := startTestEnv(t, row.environment, func(env *testEnv) {
						s = env.addSandbox(web)
						status := running
						if fails {
							status = broken(time.Now().Add(-time.Minute))
						}
						env.put(web, status)
					})
					got := env.takeRequests()
					if s.applied > 0 {
						got = inPlace + got
					}
					if got != want {
						t.Errorf("action %q, want %q", got, want)
					}
				})
			})
		}
	}
}

// environment parses pairs NAME=VALUE that are separated by spaces.
func environment(text string) map[string]string {
	m := map[string]string{}
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return m
}

// TestNextActionFollowsARepairWithoutEffect checks that the next permitted action follows, once, if
// a later run of the pod fails despite a repair.
func TestNextActionFollowsARepairWithoutEffect(t *testing.T) {
	for settings, want := range map[string]string{
		"REPAIR_DELETE_PODS=true": "delete shop/web uid-web@3",
		"REPAIR_LABEL_PODS=true":  "label shop/web uid-web cni.istio.io/uninitialized=true",
		"":                        "",
	} {
		t.Run(settings, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				env := startTestEnv(t, environment(settings), func(env *testEnv) {
					env.addSandbox(web)
					env.put(web, broken(time.Now()))
				})
				env.takeEvents()
				advance(10 * time.Second)
				env.put(web, broken(time.Now().Add(-20*time.Second))) // the earlier failed run
				settle()
				if done := env.takeRequests(); done != "" {
					t.Fatalf("requests %s because of the failure before the repair, want none", done)
				}
				env.put(web, broken(time.Now()))
				settle()
				if got := env.takeRequests(); got != want {
					t.Errorf("requests %q, want %q", got, want)
				}
				if reported := env.takeEvents(); (want == "") != (reported == "RedirectRepairFailed") {
					t.Errorf("events %s, want RedirectRepairFailed only if no action follows", reported)
				}
			})
		})
	}
}

// TestNextActionFollowsIfARepairIsNotPossible checks that the next permitted action follows if a
// repair fails, or the pod's sandbox is not found.
func TestNextActionFollowsIfARepairIsNotPossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, unrepairable := meshPod("lost"), meshPod("unrepairable")
		env := startTestEnv(t, environment("REPAIR_DELETE_PODS=true"), func(env *testEnv) {
			env.addSandbox(unrepairable).repairErr = errors.New("no memory")
			env.put(unrepairable, broken(time.Now()))
			env.put(lost, broken(time.Now()))
		})
		advance(time.Second)
		if got := env.takeRequests(); strings.Contains(got, "delete shop/lost") ||
			!strings.Contains(got, "delete shop/unrepairable") {
			t.Errorf("after a second: requests %s, want the deletion of unrepairable only", got)
		}
		advance(time.Minute)
		if got := env.takeRequests(); !strings.Contains(got, "delete shop/lost") {
			t.Errorf("after a minute: requests %s, want the deletion of lost", got)
		}
		if env.metric("sluice_repairs_total{race,delete,success}") < 2 ||
			env.metric("istio_cni_repair_pods_repaired_total{repair,fail}") < 1 {
			t.Errorf("counted %v, want two deletions and a failed repair", env.counted)
		}
	})
}

// TestAnIncompleteRepairInPlaceCountsAsRedirected covers a repair that returns an error although it
// has applied the pod's rules. The pod counts as redirected: its connections that bypass the proxy
// are ended, the repair is stored, and the pod is not deleted.
func TestAnIncompleteRepairInPlaceCountsAsRedirected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, environment("REPAIR_DELETE_PODS=true"), func(env *testEnv) {
			s = env.addSandbox(web)
			s.repairErr = errors.New("iptables-legacy cannot be read")
			s.failedRepair = compat.Result{
				Backend: compat.BackendNFT, Result: nft.Result{Outcome: nft.Created},
			}
			s.duringRepair = func() {
				env.set(func() { s.rules = rules.MustCompile(env.redirect(web)) })
			}
			env.put(web, broken(time.Now()))
		})
		kept, err := env.options.Repairs.List()
		if err != nil {
			t.Fatal(err)
		}
		requests := env.takeRequests()
		if s.ended != 1 || len(kept) != 1 || env.states() != "1 redirected" ||
			strings.Contains(requests, "delete") {
			t.Errorf("connections ended %d times, repairs %v, %s, requests %q; want once, one repair, "+
				"1 redirected and no deletion", s.ended, kept, env.states(), requests)
		}
		if len(env.events) != 1 || !strings.Contains(env.events[0].Message, "the pod is redirected now") ||
			!strings.Contains(env.events[0].Message, "incomplete: iptables-legacy cannot be read") {
			t.Errorf("events %+v, want one that says that the pod is redirected, with the error", env.events)
		}
	})
}

// TestFailedActionsAreRetried checks that an action is retried if the API server is unavailable or
// the pod has changed.
func TestFailedActionsAreRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		env := startTestEnv(t, environment(
			"REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true SLUICE_AUDIT=false"), func(env *testEnv) {
			env.requestErr = errors.New("unavailable")
			env.put(web, broken(time.Now()))
		})
		advance(5 * time.Minute)
		// The delays between attempts double from a second to a minute.
		if n := strings.Count(env.takeRequests(), "delete"); n < 5 || n > 15 {
			t.Errorf("%d deletions were attempted, want 5 to 15", n)
		}
		env.set(func() { env.requestErr = &cluster.StatusError{Code: 409} })
		advance(5 * time.Minute)
		env.takeRequests()
		advance(5 * time.Minute)
		if done := env.takeRequests(); done != "" {
			t.Errorf("requests %s although the pod has not changed, want none", done)
		}
		env.set(func() { env.requestErr = nil })
		env.put(web, broken(time.Now()))
		settle()
		if env.takeRequests() == "" || env.metric("istio_cni_repair_pods_repaired_total{delete,skip}") == 0 {
			t.Errorf("after a change: counted %v, want a request, and a skipped deletion before", env.counted)
		}
	})
}

// TestAPodIsNotUnprotectedDuringItsADD covers a runtime that starts a process of the pod before it
// configures the pod's network by ADD (cri-dockerd). Until ADD ends, the pod does not count as
// unprotected, and its addresses are not used.
func TestAPodIsNotUnprotectedDuringItsADD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.source = sandbox.Proc
			s = env.addSandbox(web)
			env.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		advance(10 * time.Second)
		if reported := env.takeEvents(); s.applied > 0 || env.states() != "" || reported != "" {
			t.Errorf("applied %d times, %q, events %q; want never, no state, no event", s.applied,
				env.states(), reported)
		}
		env.set(func() { s.addresses = append(s.addresses, netip.MustParseAddr("fd00::7")) })
		web.Status.PodIP = "10.0.0.7"
		env.put(web, podcache.PodStatus{Phase: "Pending"})
		settle()
		r, _, err := decide.Parameters(web, s.addresses, env.options.Decide)
		if err != nil {
			t.Fatal(err)
		}
		if s.applied != 1 || !rules.Equal(rules.MustCompile(r), s.rules) ||
			env.states() != "1 redirected" {
			t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied, env.states())
		}
	})
}

// TestAPodDeletedDuringItsRepairLeavesNoState checks that the auditor has no entry and no stored
// repair of a pod that is deleted during its repair.
func TestAPodDeletedDuringItsRepairLeavesNoState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.addSandbox(web).duringRepair = func() {
				env.delete(web)
				time.Sleep(time.Millisecond)
			}
			env.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		advance(time.Second)
		if kept, err := env.options.Repairs.List(); len(kept) > 0 || err != nil || env.EntryCount() > 0 {
			t.Errorf("stored repairs %v, error %v, %d entries; want none", kept, err, env.EntryCount())
		}
	})
}

// silentCluster is an API server that never replies to requests that label pods.
type silentCluster struct{ *testEnv }

func (s silentCluster) LabelPod(ctx context.Context, pod cluster.Name, _, _, _ string) error {
	_ = s.recordRequest("label " + pod.String())
	<-ctx.Done()
	return ctx.Err()
}

// TestHangingRequestsDelayNoRepair checks that an API server that does not reply does not delay
// repairs.
func TestHangingRequestsDelayNoRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, map[string]string{
			"REPAIR_REPAIR_PODS": "false", "REPAIR_LABEL_PODS": "true",
		}, func(env *testEnv) {
			env.options.Cluster = silentCluster{env}
			s = env.addRedirected(meshPod("web"))
			for i := range 60 {
				p := meshPod(fmt.Sprintf("unprotected-%d", i))
				env.addSandbox(p)
				env.put(p, broken(time.Now()))
			}
		})
		advance(time.Minute)
		env.flush(s)
		advance(10 * time.Second)
		if s.applied != 1 {
			t.Errorf("applied %d times, want 1", s.applied)
		}
		// A request is canceled after three seconds, and followed by a pause.
		if labels := strings.Count(env.takeRequests(), "label"); labels < 2 || labels > 20 {
			t.Errorf("%d label requests were sent, want 2 to 20", labels)
		}
	})
}

// TestAPodThatADDCouldNotReadIsRepaired checks that a pod that ADD has not redirected, because the
// plugin could not read the pod, is repaired, with an event that contains the reason.
func TestAPodThatADDCouldNotReadIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			if err := env.options.Records.Put(record.Record{
				Key:     record.Key{ContainerID: "c", IfName: "eth0"},
				Pod:     record.Pod{Namespace: "shop", Name: "web", UID: "uid-web"},
				Outcome: "skip", Reason: agent.PodUnreadable,
			}); err != nil {
				t.Fatal(err)
			}
			env.put(web, running)
		})
		if s.applied != 1 || len(env.events) != 1 ||
			!strings.HasPrefix(env.events[0].Message,
				"the plugin could not read the pod when the pod started; ") {
			t.Errorf("applied %d times, events %+v; want once, one event with the reason", s.applied, env.events)
		}
	})
}

// TestPodsWithUnknownStartAreCounted checks which pods are counted because it is unknown whether
// the runtime called the plugin for them.
func TestPodsWithUnknownStartAreCounted(t *testing.T) {
	for _, row := range []struct {
		name  string
		want  string // at once, and a minute later
		start func(*testEnv)
	}{
		{"no pods", "0 0", func(*testEnv) {}},
		{"the pods have not been listed", "0 0, not listed", func(env *testEnv) { env.synced = false }},
		{"a redirected pod", "0 0", func(env *testEnv) { env.addRedirected(meshPod("web")) }},
		{"a pod outside the mesh", "0 0", func(env *testEnv) {
			env.put(&decide.Pod{Metadata: decide.Metadata{Namespace: "shop", Name: "job", UID: "1"}}, running)
		}},
		{"no sandbox is found", "1 1", func(env *testEnv) { env.put(meshPod("web"), running) }},
		{"the pod is starting", "0 0", func(env *testEnv) {
			web := meshPod("web")
			web.Status = decide.PodStatus{}
			env.put(web, podcache.PodStatus{Phase: "Pending"})
		}},
		{"the rules cannot be read", "1 1", func(env *testEnv) {
			env.addRedirected(meshPod("web")).checkErr = errors.New("no memory")
		}},
		{"foreign rules have an unknown effect", "0 0", func(env *testEnv) {
			env.addRedirected(meshPod("web")).foreign = foreign.Effect{Unknown: []string{"a rule"}}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				env := startTestEnv(t, nil, row.start)
				first, _ := env.PodsWithUnknownStart()
				advance(time.Minute)
				second, listed := env.PodsWithUnknownStart()
				got := fmt.Sprint(first, second)
				if !listed {
					got += ", not listed"
				}
				if got != row.want {
					t.Errorf("%s pods, want %s", got, row.want)
				}
			})
		})
	}
	t.Run("a later pod", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			env := startTestEnv(t, nil)
			env.put(meshPod("web"), running)
			settle()
			if n, _ := env.PodsWithUnknownStart(); n != 0 {
				t.Errorf("a pod that has just appeared: %d pods, want 0", n)
			}
			advance(time.Minute)
			if n, _ := env.PodsWithUnknownStart(); n != 1 {
				t.Errorf("no sandbox is found within a minute: %d pods, want 1", n)
			}
			env.addRedirected(meshPod("web"))
			advance(time.Second)
			if n, _ := env.PodsWithUnknownStart(); n != 0 {
				t.Errorf("the sandbox is found: %d pods, want 0", n)
			}
		})
	})
}

// TestAddressesThatNeverMatchAreLogged covers running pods without a record whose ADD seems to run
// forever: the sandbox was found in /proc, and the status has an address that the network namespace
// never gets. It also covers a network namespace without an address, for which the needed rules are
// unknown.
func TestAddressesThatNeverMatchAreLogged(t *testing.T) {
	for _, row := range []struct {
		name      string
		status    string // the address in the pod's status
		addresses []netip.Addr
		logged    string // within a minute
		repaired  bool
	}{
		{
			"a different address", "10.0.0.1",
			[]netip.Addr{netip.MustParseAddr("10.0.0.2")},
			"are [10.0.0.2], and its status has [10.0.0.1]", true,
		},
		{"an address only in the status", "10.0.0.1", nil, "are [], and its status has [10.0.0.1]", false},
		{"no address anywhere", "", nil, "the pod's network namespace has no address", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, lines := observer.New(zap.WarnLevel)
				web := meshPod("web")
				web.Status.PodIP = row.status
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) {
					env.options.Log = zap.New(core)
					env.source = sandbox.Proc
					s = env.addSandbox(web)
					s.addresses = row.addresses
					env.put(web, running)
				})
				applied := func() (n int) { env.set(func() { n = s.applied }); return n }
				advance(10 * time.Second)
				if lines.Len() != 0 || applied() != 0 {
					t.Errorf("within 10 s: log %v, applied %d times; want nothing", lines.All(), applied())
				}
				advance(50 * time.Second)
				if text := fmt.Sprint(lines.All()); !strings.Contains(text, row.logged) {
					t.Errorf("within a minute: log %s, want %q", text, row.logged)
				}
				if applied() != 0 {
					t.Error("the pod is repaired while its ADD may be running")
				}
				advance(9 * time.Minute)
				if got := lines.FilterMessage("a pod cannot be audited").Len(); got < 1 || got > 2 {
					t.Errorf("%d lines in ten minutes, want 1 or 2", got)
				}
				want := map[bool]string{true: "1 redirected", false: "1 unknown"}[row.repaired]
				if env.states() != want || applied() != map[bool]int{true: 1}[row.repaired] {
					t.Errorf("after ten minutes: %s, applied %d times; want %s", env.states(), applied(), want)
				}
			})
		})
	}
}
