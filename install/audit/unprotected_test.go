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

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// TestUnprotectedPodIsRepairedInPlace checks that a pod that started before the installation of the
// plugin is redirected when it is found, without waiting for its failure.
func TestUnprotectedPodIsRepairedInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.home(web)
			w.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		if !rules.Equal(rules.MustCompile(w.redirect(web)), s.has) ||
			w.states() != "1 redirected" || w.told() != "RedirectRepaired" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
		if w.metric("sluice_repairs_total{race,repair,success}") != 1 ||
			w.metric("istio_cni_repair_pods_repaired_total{repair,success}") != 1 ||
			w.metric("sluice_repair_duration_seconds_count{race}") != 1 {
			t.Errorf("counted %v", w.counted)
		}
		// Later repairs use the parameters that were applied first, also by the next agent,
		// whatever the annotations are.
		web.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "81"
		for _, life := range []func(){w.again, func() {}} {
			life()
			w.put(web, running)
			settle()
			applied := s.applied
			w.flush(s)
			if s.applied != applied+1 ||
				w.metric("sluice_repairs_total{drift,repair,success}") == 0 {
				t.Errorf("applied %d times, counted %v", s.applied, w.counted)
			}
			delete(web.Metadata.Annotations, "traffic.sidecar.istio.io/excludeOutboundPorts")
			if !rules.Equal(rules.MustCompile(w.redirect(web)), s.has) {
				t.Error("the rules have changed")
			}
		}
		w.delete(web)
		settle()
		if kept, err := w.options.Repairs.List(); len(kept) > 0 || err != nil {
			t.Errorf("entries of a deleted pod: %v, %v", kept, err)
		}
	})
}

// TestAPodThatHasNoSandboxYet checks that the sandbox of such a pod is searched again, immediately
// when the pod changes, and that the pod is not counted before it has an address.
func TestAPodThatHasNoSandboxYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		w := node(t, nil, func(w *testEnv) { w.put(web, podcache.PodStatus{Phase: "Pending"}) })
		pass(10 * time.Minute)
		if w.states() != "" || w.searches > 25 {
			t.Errorf("%s, %d searches", w.states(), w.searches)
		}
		s := w.home(web)
		web.Status.PodIP = "10.0.0.7"
		w.put(web, podcache.PodStatus{Phase: "Pending"})
		settle()
		if s.applied != 1 || w.states() != "1 redirected" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
	})
}

// TestSandboxThatIsNotFound checks that such a pod is counted, and that searches are rare.
func TestSandboxThatIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		core, lines := observer.New(zap.InfoLevel)
		w := node(t, nil, func(w *testEnv) {
			w.options.Log = zap.New(core)
			w.put(web, running)
		})
		pass(time.Hour)
		if n := lines.FilterField(zap.Error(errNowhere)).Len(); n < 1 || n > 12 {
			t.Errorf("the reason is logged %d times in an hour", n)
		}
		if w.states() != "1 unknown" || w.searches > 80 || w.told() != "" {
			t.Errorf("%s, %d searches", w.states(), w.searches)
		}
	})
}

// TestANewSandbox checks that a new sandbox of a pod is found.
func TestANewSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var old *space
		w := node(t, nil, func(w *testEnv) { old = w.redirected(web) })
		w.mu.Lock()
		delete(w.spaces, "/run/netns/"+old.id.String())
		w.mu.Unlock()
		s := w.redirected(web)
		w.set(func() { s.has = rules.Ruleset{} })
		pass(time.Second)
		if s.applied != 1 || w.states() != "1 redirected" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
		w.flush(s)
		if s.applied != 2 {
			t.Error("events of the new sandbox are not received")
		}
	})
}

// TestPodsThatAreNotRedirected checks that such pods are not audited.
func TestPodsThatAreNotRedirected(t *testing.T) {
	for name, prepare := range map[string]func(*testEnv, *decide.Pod) podcache.PodStatus{
		"a pod that is being deleted": func(*testEnv, *decide.Pod) podcache.PodStatus {
			return podcache.PodStatus{Phase: "Running", Deleted: true}
		},
		"a pod that has succeeded": func(*testEnv, *decide.Pod) podcache.PodStatus {
			return podcache.PodStatus{Phase: "Succeeded"}
		},
		"a pod that has failed": func(*testEnv, *decide.Pod) podcache.PodStatus {
			return podcache.PodStatus{Phase: "Failed"}
		},
		"a pod of the host's network": func(_ *testEnv, p *decide.Pod) podcache.PodStatus {
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
		"a pod that ADD has not redirected": func(w *testEnv, p *decide.Pod) podcache.PodStatus {
			w.record(p, nil)
			return running
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *space
				w := node(t, nil, func(w *testEnv) {
					s = w.home(web)
					w.put(web, prepare(w, web))
				})
				pass(10 * time.Minute)
				if s.checked+s.applied > 0 || w.states() != "" || w.told() != "" {
					t.Errorf("compared %d times, applied %d times, %s", s.checked, s.applied,
						w.states())
				}
			})
		})
	}
}

// TestAPodOfIstioCNI checks that a pod that istio-cni has redirected is not changed.
func TestAPodOfIstioCNI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.home(web)
			s.istio = []string{"chain ip nat ISTIO_OUTPUT"}
			w.put(web, broken(time.Now()))
		})
		pass(10 * time.Minute)
		if s.applied > 0 || w.states() != "1 redirected" || w.told()+w.done() != "" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
	})
}

// TestParametersThatMakeNoSense checks that a pod with invalid parameters is reported, and not
// repaired.
func TestParametersThatMakeNoSense(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "80a"
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.home(web)
			w.put(web, running)
		})
		if s.applied > 0 || w.states() != "1 unprotected" || len(w.events) != 1 ||
			!strings.Contains(w.events[0].Message, `"80a"`) {
			t.Errorf("%s, told %+v", w.states(), w.events)
		}
	})
}

// TestPolicies checks the action for a pod that started before the plugin, in istio-cni's order.
// Deletion and labelling require a failed validation.
func TestPolicies(t *testing.T) {
	const inPlace, deleting, labelling, nothing = "repaired", "delete shop/web uid-web@1",
		"label shop/web uid-web cni.istio.io/uninitialized=true", ""
	for _, row := range []struct {
		name   string
		env    map[string]string
		broken string // the action for a pod that has failed
		waits  string // the action for a pod that has not failed
	}{
		{"the chart's defaults", nil, inPlace, inPlace},
		{
			"repair takes precedence", env("REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true"),
			inPlace, inPlace,
		},
		{
			"deletion takes precedence over labelling",
			env("REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true REPAIR_LABEL_PODS=true"),
			deleting, nothing,
		},
		{"label", env("REPAIR_REPAIR_PODS=false REPAIR_LABEL_PODS=true"), labelling, nothing},
		{"none", env("REPAIR_REPAIR_PODS=false"), nothing, nothing},
		{"not enabled", env("REPAIR_ENABLED=false REPAIR_DELETE_PODS=true"), nothing, nothing},
		{
			"deletion without entering namespaces",
			env("SLUICE_AUDIT=false REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true"),
			deleting, nothing,
		},
		{"repair without audit", env("SLUICE_AUDIT=false"), inPlace, inPlace},
		{
			"only another pod is selected",
			env("REPAIR_LABEL_SELECTORS=tier=web REPAIR_DELETE_PODS=true"), nothing, nothing,
		},
	} {
		for _, fails := range []bool{true, false} {
			want := row.waits
			if fails {
				want = row.broken
			}
			t.Run(row.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					web := meshPod("web")
					var s *space
					w := node(t, row.env, func(w *testEnv) {
						s = w.home(web)
						status := running
						if fails {
							status = broken(time.Now().Add(-time.Minute))
						}
						w.put(web, status)
					})
					got := w.done()
					if s.applied > 0 {
						got = inPlace + got
					}
					if got != want {
						t.Errorf("fails %v: %q, want %q", fails, got, want)
					}
				})
			})
		}
	}
}

func env(text string) map[string]string {
	m := map[string]string{}
	for _, pair := range strings.Fields(text) {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return m
}

// TestRepairWithoutEffect checks that the next permitted action follows, once, if a later run of
// the pod fails despite a repair.
func TestRepairWithoutEffect(t *testing.T) {
	for name, want := range map[string]string{
		"REPAIR_DELETE_PODS=true": "delete shop/web uid-web@3",
		"REPAIR_LABEL_PODS=true":  "label shop/web uid-web cni.istio.io/uninitialized=true",
		"":                        "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				w := node(t, env(name), func(w *testEnv) {
					w.home(web)
					w.put(web, broken(time.Now()))
				})
				w.told()
				pass(10 * time.Second)
				w.put(web, broken(time.Now().Add(-20*time.Second))) // the earlier failed run
				settle()
				if done := w.done(); done != "" {
					t.Fatalf("too early: %s", done)
				}
				w.put(web, broken(time.Now()))
				settle()
				if got := w.done(); got != want {
					t.Errorf("%q, want %q", got, want)
				}
				if reported := w.told(); (want == "") != (reported == "RedirectRepairFailed") {
					t.Errorf("told %s", reported)
				}
			})
		})
	}
}

// TestRepairThatIsNotPossible checks the same if the pod cannot be repaired, or its sandbox is not
// found.
func TestRepairThatIsNotPossible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, refused := meshPod("lost"), meshPod("refused")
		w := node(t, env("REPAIR_DELETE_PODS=true"), func(w *testEnv) {
			w.home(refused).refuse = errors.New("no memory")
			w.put(refused, broken(time.Now()))
			w.put(lost, broken(time.Now()))
		})
		pass(time.Second)
		if got := w.done(); !strings.Contains(got, "delete shop/lost") ||
			!strings.Contains(got, "delete shop/refused") {
			t.Error(got)
		}
		if w.metric("sluice_repairs_total{race,delete,success}") < 2 ||
			w.metric("istio_cni_repair_pods_repaired_total{repair,fail}") < 1 {
			t.Errorf("counted %v", w.counted)
		}
	})
}

// TestActionsThatFail checks that an action is retried if the API server is unavailable or the pod
// has changed.
func TestActionsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		w := node(t, env(
			"REPAIR_REPAIR_PODS=false REPAIR_DELETE_PODS=true SLUICE_AUDIT=false"), func(w *testEnv) {
			w.refuse = errors.New("away")
			w.put(web, broken(time.Now()))
		})
		pass(5 * time.Minute)
		if n := strings.Count(w.done(), "delete"); n < 5 || n > 15 {
			t.Errorf("tried %d times", n)
		}
		w.set(func() { w.refuse = &cluster.StatusError{Code: 409} })
		pass(5 * time.Minute)
		w.done()
		pass(5 * time.Minute)
		if done := w.done(); done != "" {
			t.Errorf("without a change of the pod: %s", done)
		}
		w.set(func() { w.refuse = nil })
		w.put(web, broken(time.Now()))
		settle()
		if w.done() == "" || w.metric("istio_cni_repair_pods_repaired_total{delete,skip}") == 0 {
			t.Errorf("counted %v", w.counted)
		}
	})
}

// TestAPodWhoseADDIsUnderWay covers a process of the pod that exists before the pod's network
// (cri-dockerd), and before its ADD: the pod does not count as unprotected, and its addresses so
// far are not used.
func TestAPodWhoseADDIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		web.Status = decide.PodStatus{}
		var s *space
		w := node(t, nil, func(w *testEnv) {
			w.source = sandbox.Proc
			s = w.home(web)
			w.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		pass(10 * time.Second)
		if s.applied > 0 || w.states() != "" || w.told() != "" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
		w.set(func() { s.addresses = append(s.addresses, netip.MustParseAddr("fd00::7")) })
		web.Status.PodIP = "10.0.0.7"
		w.put(web, podcache.PodStatus{Phase: "Pending"})
		settle()
		r, _, err := decide.Parameters(web, s.addresses, w.options.Decide)
		if err != nil {
			t.Fatal(err)
		}
		if s.applied != 1 || !rules.Equal(rules.MustCompile(r), s.has) ||
			w.states() != "1 redirected" {
			t.Errorf("applied %d times, %s", s.applied, w.states())
		}
	})
}

// TestPodThatEndsWhileItIsRepaired checks that nothing is kept of a pod that is deleted during its
// repair.
func TestPodThatEndsWhileItIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		w := node(t, nil, func(w *testEnv) {
			w.home(web).during = func() {
				w.delete(web)
				time.Sleep(time.Millisecond)
			}
			w.put(web, podcache.PodStatus{Phase: "Pending"})
		})
		pass(time.Second)
		if kept, err := w.options.Repairs.List(); len(kept) > 0 || err != nil || w.Held() > 0 {
			t.Errorf("kept %v, %v, and %d entries", kept, err, w.Held())
		}
	})
}

// silent is an API server that accepts connections and never answers.
type silent struct{ *testEnv }

func (s silent) LabelPod(ctx context.Context, pod cluster.Name, _, _, _ string) error {
	_ = s.act("label " + pod.String())
	<-ctx.Done()
	return ctx.Err()
}

// TestActionsThatHang checks that an API server that does not answer does not delay repairs.
func TestActionsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, map[string]string{
			"REPAIR_REPAIR_PODS": "false", "REPAIR_LABEL_PODS": "true",
		}, func(w *testEnv) {
			w.options.Cluster = silent{w}
			s = w.redirected(meshPod("web"))
			for i := range 60 {
				p := meshPod(fmt.Sprintf("late-%d", i))
				w.home(p)
				w.put(p, broken(time.Now()))
			}
		})
		pass(time.Minute)
		w.flush(s)
		pass(10 * time.Second)
		if s.applied != 1 {
			t.Errorf("applied %d times", s.applied)
		}
		if acts := strings.Count(w.done(), "label"); acts < 2 || acts > 20 {
			t.Errorf("%d pods were requested", acts)
		}
	})
}

// TestAPodThatADDCouldNotRead checks that a pod that ADD could not read and let start is repaired
// too, with an event that contains the reason.
func TestAPodThatADDCouldNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.home(web)
			if err := w.options.Records.Put(record.Record{
				Key:     record.Key{ContainerID: "c", IfName: "eth0"},
				Pod:     record.Pod{Namespace: "shop", Name: "web", UID: "uid-web"},
				Outcome: "skip", Reason: agent.PodUnreadable,
			}); err != nil {
				t.Fatal(err)
			}
			w.put(web, running)
		})
		if s.applied != 1 || len(w.events) != 1 ||
			!strings.HasPrefix(w.events[0].Message,
				"the plugin could not read the pod when it started; ") {
			t.Errorf("applied %d times, events %+v", s.applied, w.events)
		}
	})
}
