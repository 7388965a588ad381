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
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// The tests in this file cover sandboxes that the runtime removes or replaces. This is normal and
// must not be reported. If rules are removed in the meantime, they must be restored.

// terminating is the status of a running pod in its termination grace period.
var terminating = podcache.PodStatus{Phase: "Running", Deleted: true}

// removeRecord removes the record of a pod, as DEL does.
func (env *testEnv) removeRecord(p *decide.Pod) {
	env.t.Helper()
	key := record.Key{ContainerID: "c-" + p.Metadata.UID, IfName: "eth0"}
	if err := env.options.Records.Remove(key); err != nil {
		env.t.Fatal(err)
	}
}

// removeSandbox removes the network namespace of a pod.
func (env *testEnv) removeSandbox(s *fakeNamespace) {
	env.set(func() { delete(env.namespaces, "/run/netns/"+s.id.String()) })
}

// recordLog makes the auditor record its log, and returns the lines.
func recordLog(env *testEnv) *observer.ObservedLogs {
	core, lines := observer.New(zap.InfoLevel)
	env.options.Log = zap.New(core)
	return lines
}

// TestASandboxThatCannotBeOpenedCountsAsExisting checks that a sandbox that cannot be opened for
// lack of file descriptors counts as existing: the pod keeps the rules of ADD, although the record
// of ADD was removed and the annotations have changed.
func TestASandboxThatCannotBeOpenedCountsAsExisting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
		want := s.rules
		env.removeRecord(web)
		web.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "81"
		env.set(func() { env.openErr = fmt.Errorf("open: %w", unix.EMFILE) })
		env.put(web, running)
		advance(time.Minute)
		if env.states() != "1 unknown" {
			t.Errorf("without file descriptors: %s, want 1 unknown", env.states())
		}
		env.set(func() { env.openErr, s.rules = nil, rules.Ruleset{} })
		advance(time.Minute)
		if !rules.Equal(want, s.rules) || env.states() != "1 redirected" {
			t.Errorf("%s, rules of ADD: %t; want 1 redirected with the rules of ADD", env.states(),
				rules.Equal(want, s.rules))
		}
	})
}

// TestNothingIsReportedAboutAPodThatEnds checks that nothing is reported about a pod that ends: DEL
// removes its record, the runtime removes its addresses and then its network namespace, and only
// then its status changes. The pod is audited after each step.
func TestNothingIsReportedAboutAPodThatEnds(t *testing.T) {
	for name, row := range map[string]struct {
		status podcache.PodStatus
		change func(*decide.Pod) // changes the pod after ADD
	}{
		"the pod ends by itself": {status: running},
		"the pod ends by itself, with changed annotations": {running, func(p *decide.Pod) {
			p.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "81"
		}},
		"the pod ends by itself, with invalid annotations": {running, func(p *decide.Pod) {
			p.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "80a"
		}},
		"the pod is deleted": {status: terminating},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *fakeNamespace
				var lines *observer.ObservedLogs
				env := startTestEnv(t, nil, func(env *testEnv) {
					lines = recordLog(env)
					s = env.addRedirected(web)
				})
				if row.change != nil {
					row.change(web)
				}
				env.put(web, row.status)
				advance(10 * time.Second)
				env.removeRecord(web)
				env.put(web, row.status)
				advance(10 * time.Second)
				env.change(s, func() { s.addresses = nil })
				advance(40 * time.Second)
				env.removeSandbox(s)
				env.put(web, row.status)
				advance(10 * time.Second)
				env.put(web, podcache.PodStatus{Phase: "Succeeded"})
				advance(time.Minute)
				if reported := env.takeEvents(); reported != "" || s.applied > 0 || lines.Len() > 0 ||
					env.states() != "" {
					t.Errorf("reported %q, applied %d times, %s, logged %v; want no event, never, no state, no line", reported, s.applied,
						env.states(), lines.All())
				}
			})
		})
	}
}

// TestAPodThatIsNotRedirectedIsNotRepairedWhileItEnds checks that a pod that ADD has not redirected
// is not repaired while it ends, although ADD would redirect it now.
func TestAPodThatIsNotRedirectedIsNotRepairedWhileItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addSandbox(web)
			env.record(web, nil)
			env.put(web, running)
		})
		env.removeRecord(web)
		env.put(web, running)
		advance(10 * time.Second)
		var applied int
		env.set(func() { applied = s.applied })
		if reported := env.takeEvents(); reported != "" || applied > 0 {
			t.Errorf("reported %q, applied %d times; want no event, never", reported, applied)
		}
		advance(10 * time.Second) // the sandbox still exists: DEL has not removed the record
		if s.applied != 1 {
			t.Errorf("after 20 s, applied %d times; want once", s.applied)
		}
	})
}

// TestATerminatingPodIsRepaired checks that a pod is repaired in its termination grace period, when
// it still has traffic. An agent that starts in this time repairs the pod too.
func TestATerminatingPodIsRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
		env.put(web, terminating)
		advance(time.Second)
		env.flush(s)
		env.restart()
		env.flush(s)
		settle()
		if reported := env.takeEvents(); s.applied != 2 || env.states() != "1 redirected" ||
			reported != "RedirectRepaired, RedirectRepaired" {
			t.Errorf("applied %d times, %s, events %q; want twice, 1 redirected, RedirectRepaired twice",
				s.applied, env.states(), reported)
		}
	})
}

// TestUndecidedRulesAreNotReportedDuringTheRemoval checks that foreign rules whose effect cannot be
// decided are not reported while the runtime removes the sandbox, and are reported if the record is
// missing but the sandbox stays.
func TestUndecidedRulesAreNotReportedDuringTheRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, deleted, lost := meshPod("ended"), meshPod("deleted"), meshPod("lost")
		var s []*fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			for _, p := range []*decide.Pod{ended, deleted, lost} {
				s = append(s, env.addRedirected(p))
			}
		})
		env.put(deleted, terminating)
		settle()
		for _, p := range []*decide.Pod{ended, deleted, lost} {
			env.removeRecord(p)
		}
		for i := range s {
			env.change(s[i], func() { s[i].foreign = foreign.Effect{Unknown: []string{"an interface"}} })
		}
		advance(10 * time.Second)
		if reported := env.takeEvents(); reported != "" || env.states() != "3 unknown" {
			t.Errorf("after 10 s: reported %q, %s; want no event, 3 unknown", reported, env.states())
		}
		env.removeSandbox(s[0])
		env.removeSandbox(s[1])
		advance(3 * time.Minute)
		if len(env.events) != 1 || env.events[0].Reason != "RedirectUnknown" ||
			env.events[0].About.Name != "lost" {
			t.Errorf("after three minutes: events %+v, want RedirectUnknown of the pod lost", env.events)
		}
	})
}

// TestRemovalOfTheLoopbackInterfaceIsNotReported checks that a pod is not reported while its
// runtime removes the loopback interface, which happens before DEL of the plugin removes the
// record.
func TestRemovalOfTheLoopbackInterfaceIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
		env.takeEvents()
		env.change(s, func() {
			s.foreign = foreign.Effect{Unknown: []string{"a route"}, LoopbackMissing: true}
		})
		advance(10 * time.Second)
		if reported := env.takeEvents(); reported != "" || env.states() != "1 unknown" {
			t.Errorf("reported %q, %s; want no event, 1 unknown", reported, env.states())
		}
		env.removeRecord(web)
		env.removeSandbox(s)
		advance(time.Minute)
		if reported := env.takeEvents(); reported != "" {
			t.Errorf("reported %q after the removal of the sandbox, want no event", reported)
		}
	})
}

// TestATerminatingPodIsReported checks that a pod in its termination grace period is reported like
// a running pod if it is unknown whether its traffic bypasses the proxy. The removal of the record
// of ADD shows that the runtime removes the sandbox. A pod that the agent has redirected has no
// such record: it is reported only if the sandbox stays.
func TestATerminatingPodIsReported(t *testing.T) {
	undecided := func(s *fakeNamespace) { s.foreign = foreign.Effect{Unknown: []string{"an interface"}} }
	withoutAddress := func(s *fakeNamespace) { s.addresses = nil }
	withoutLoopback := func(s *fakeNamespace) {
		s.foreign = foreign.Effect{Unknown: []string{"a route"}, LoopbackMissing: true}
	}
	redirected := (*testEnv).addRedirected
	repaired := func(env *testEnv, p *decide.Pod) *fakeNamespace {
		s := env.addSandbox(p)
		env.put(p, running)
		return s
	}
	for name, row := range map[string]struct {
		add    func(*testEnv, *decide.Pod) *fakeNamespace
		change func(*fakeNamespace)
		within time.Duration // the pod is reported within this time
	}{
		"a pod whose rules cannot be decided":          {redirected, undecided, 0},
		"a pod without an address":                     {redirected, withoutAddress, 31 * time.Second},
		"a pod without a loopback interface":           {redirected, withoutLoopback, 31 * time.Second},
		"a repaired pod whose rules cannot be decided": {repaired, undecided, 3 * time.Minute},
		"a repaired pod without an address":            {repaired, withoutAddress, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) { s = row.add(env, web) })
				env.put(web, terminating)
				settle()
				env.takeEvents()
				env.change(s, func() { row.change(s) })
				advance(row.within)
				if reported := env.takeEvents(); reported != "RedirectUnknown" ||
					env.states() != "1 unknown" {
					t.Errorf("reported %q, %s; want event RedirectUnknown, 1 unknown", reported, env.states())
				}
			})
		})
	}
}

// TestATerminatingPodIsUnknownWhileItsSandboxMayExist checks that a pod in its termination grace
// period counts as unknown if its sandbox may exist, and as ended if the sandbox does not exist.
func TestATerminatingPodIsUnknownWhileItsSandboxMayExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		var lines *observer.ObservedLogs
		env := startTestEnv(t, nil, func(env *testEnv) {
			lines = recordLog(env)
			s = env.addRedirected(web)
			env.findErr = errors.New("permission denied")
		})
		env.put(web, terminating)
		advance(time.Minute)
		if env.states() != "1 unknown" || lines.Len() != 1 {
			t.Errorf("%s, logged %v; want 1 unknown, one line", env.states(), lines.All())
		}
		env.set(func() { env.findErr = nil })
		env.removeSandbox(s)
		advance(2 * time.Minute)
		if env.states() != "" {
			t.Errorf("without a sandbox: %s, want no state", env.states())
		}
	})
}

// TestRemovalOfTheRecordDuringAnAuditIsNotReported checks that nothing is reported about a pod
// whose DEL runs while the pod is audited.
func TestRemovalOfTheRecordDuringAnAuditIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
		env.put(web, terminating)
		settle()
		env.change(s, func() {
			s.foreign = foreign.Effect{Unknown: []string{"an interface"}}
			s.duringForeign = func() { env.removeRecord(web) }
		})
		advance(10 * time.Second)
		if reported := env.takeEvents(); reported != "" || env.states() != "1 unknown" {
			t.Errorf("reported %q, %s; want no event, 1 unknown", reported, env.states())
		}
	})
}

// TestATerminatingPodIsNotDeleted checks that the policy for broken pods does not apply to a
// pod that was repaired, still fails, and is being deleted.
func TestATerminatingPodIsNotDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		env := startTestEnv(t, environment("REPAIR_DELETE_PODS=true"), func(env *testEnv) {
			env.addSandbox(web)
			env.put(web, broken(time.Now()))
		})
		advance(10 * time.Second)
		status := broken(time.Now())
		status.Deleted = true
		env.put(web, status)
		advance(time.Minute)
		if requests, reported := env.takeRequests(), env.takeEvents(); requests != "" ||
			reported != "RedirectRepaired" {
			t.Errorf("requests %q, events %q; want no request, event RedirectRepaired", requests, reported)
		}
	})
}

// TestAReplacedSandboxIsNotRepairedDuringItsADD covers a pod whose sandbox is replaced, by a
// runtime that starts a process of the pod before ADD: containerd with user namespaces, and
// cri-dockerd. The status of the pod contains the address of the earlier sandbox.
func TestAReplacedSandboxIsNotRepairedDuringItsADD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var old *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { old = env.addRedirected(web) })
		env.removeRecord(web)
		env.removeSandbox(old)
		env.set(func() { env.source = sandbox.Proc })
		s := env.addSandbox(web)
		env.set(func() { s.addresses = nil })
		env.put(web, running)
		advance(5 * time.Second)
		env.set(func() { s.addresses = []netip.Addr{netip.MustParseAddr("10.0.0.8")} })
		env.put(web, running)
		advance(time.Minute)
		if reported := env.takeEvents(); reported != "" || s.applied > 0 || env.states() != "1 unknown" {
			t.Errorf("during ADD: reported %q, applied %d times, %s; want no event, never, 1 unknown",
				reported, s.applied, env.states())
		}
		web.Status.PodIP = "10.0.0.8" // ADD has ended, without the plugin
		env.put(web, running)
		settle()
		if s.applied != 1 || env.states() != "1 redirected" {
			t.Errorf("after ADD: applied %d times, %s; want once, 1 redirected", s.applied, env.states())
		}
	})
}

// TestARepairDoesNotHideTheBypassOfTheNextSandbox checks that the repair of an earlier sandbox does
// not hide that the runtime created the next one without the plugin too.
func TestARepairDoesNotHideTheBypassOfTheNextSandbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		start := time.Now()
		var old *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			env.created = start.Add(-time.Hour)
			env.options.Bypass.NoteChain(bypass.ChainCheck{At: start, Complete: true, Repaired: true})
			env.options.Bypass.NoteChain(bypass.ChainCheck{At: start.Add(time.Hour), Complete: true})
			old = env.addSandbox(web)
			env.put(web, running)
		})
		if old.applied != 1 {
			t.Fatalf("applied %d times, want once", old.applied)
		}
		env.takeEvents()
		advance(10 * time.Minute)
		env.removeSandbox(old)
		s := env.addSandbox(web)
		env.set(func() { env.created = time.Now() })
		env.put(web, running)
		advance(time.Second)
		if b, bypassed := env.options.Bypass.Current(); s.applied != 1 || !bypassed ||
			b.Pod != "shop/web" {
			t.Errorf("applied %d times, bypassed: %t, %v; want once, a bypass of shop/web", s.applied, bypassed, b)
		}
		if len(env.events) != 1 || !strings.Contains(env.events[0].Message, "without calling the plugin") {
			t.Errorf("events %+v, want one that names the bypass", env.events)
		}
	})
}

// TestMissingSandboxIsLoggedAfterAWhile checks that it is logged only after a while that the
// sandbox of a running pod is missing: the pod may have ended, or the runtime may be replacing its
// sandbox.
func TestMissingSandboxIsLoggedAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines *observer.ObservedLogs
		env := startTestEnv(t, nil, func(env *testEnv) {
			lines = recordLog(env)
			env.put(meshPod("web"), running)
		})
		advance(10 * time.Second)
		if lines.Len() > 0 || env.states() != "1 unknown" {
			t.Errorf("after 10 s: %s, logged %v; want 1 unknown, no line", env.states(), lines.All())
		}
		advance(time.Minute)
		if lines.Len() == 0 {
			t.Error("after 70 s: nothing is logged, want the missing sandbox")
		}
	})
}

// failingPods is a cache whose requests for pods fail after a number of successes.
type failingPods struct {
	*testEnv
	successes int
	err       error
}

func (p *failingPods) Pod(ctx context.Context, ref source.Ref) (text []byte, fetched bool, err error) {
	if p.successes--; p.successes < 0 {
		return nil, true, p.err
	}
	return p.testEnv.Pod(ctx, ref)
}

// TestAPodThatCannotBeReadIsNotInvalid checks that a pod without a record is not reported as
// invalid if the API server does not reply, or if the pod was deleted meanwhile.
func TestAPodThatCannotBeReadIsNotInvalid(t *testing.T) {
	for kind, want := range map[source.Kind]string{
		source.Unavailable: "1 unknown", source.NotFound: "",
	} {
		t.Run(string(kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) {
					env.options.Pods = &failingPods{
						testEnv: env, successes: 1, err: source.WithKind(kind, errors.New("no reply")),
					}
					s = env.addSandbox(web)
					env.put(web, running)
				})
				if reported := env.takeEvents(); reported != "" || s.applied > 0 ||
					env.states() != want {
					t.Errorf("reported %q, applied %d times, %s; want no event, never, %q",
						reported, s.applied, env.states(), want)
				}
			})
		})
	}
}

// TestARetriedRepairBlamesNoOtherProgram checks that another program is named as the cause only
// after repeated repairs, not while a failed repair waits for its next attempt.
func TestARetriedRepairBlamesNoOtherProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			s.repairErr = errors.New("no memory")
		})
		for range 3 {
			env.change(s, func() { s.rules = rules.Ruleset{} })
			settle()
		}
		if reported := env.takeEvents(); reported != "RedirectRepairFailed" {
			t.Errorf("reported %q, want event RedirectRepairFailed", reported)
		}
	})
}
