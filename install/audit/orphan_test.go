package audit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/netns/netnstest"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/rulestest"
)

// The tests in this file cover orphaned pods: the pod was deleted from the API server, but its
// sandbox still exists, because the deletion was forced or the API server lost the object.

// TestAForceDeletedPodIsRepaired checks that a force-deleted pod is audited until its sandbox ends,
// by the running agent and by the next agent, and that the auditor then has no entry, no attempts
// and no stored repair of the pod.
func TestAForceDeletedPodIsRepaired(t *testing.T) {
	for name, repaired := range map[string]bool{
		"a pod that ADD has redirected":       false,
		"a pod that the agent has redirected": true,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				var s *fakeNamespace
				env := startTestEnv(t, nil, func(env *testEnv) {
					if repaired {
						s = env.addSandbox(web)
						env.put(web, running)
					} else {
						s = env.addRedirected(web)
					}
				})
				env.takeEvents()
				env.forceDelete(web)
				advance(10 * time.Minute)
				for _, restart := range []func(){func() {}, env.restart} {
					restart()
					applied := s.applied
					env.flush(s)
					settle()
					reported := env.takeEvents()
					if s.applied != applied+1 || env.states() != "1 redirected" ||
						reported != "RedirectRepaired" {
						t.Errorf("applied %d times, reported %q, %s; "+
							"want once, event RedirectRepaired, 1 redirected", s.applied-applied, reported,
							env.states())
					}
					advance(10 * time.Minute)
				}
				env.change(s, func() { s.foreign = foreign.Effect{Bypasses: []foreign.Bypass{{}}} })
				settle()
				if reported := env.takeEvents(); env.states() != "1 drifted" ||
					reported != "RedirectBypassed" {
					t.Errorf("with a foreign rule: %s, events %q; want 1 drifted, event RedirectBypassed",
						env.states(), reported)
				}
				env.removeRecord(web)
				advance(10 * time.Second)
				if env.states() != "1 drifted" {
					t.Errorf("after DEL: %s, want 1 drifted", env.states())
				}
				env.removeSandbox(s)
				advance(20 * time.Second)
				kept, err := env.options.Repairs.List()
				if env.states() != "" || env.EntryCount() > 0 || len(kept) > 0 || err != nil ||
					env.AttemptCount("uid-web") > 0 {
					t.Errorf("at the end: %s, %d entries, repairs %v, error %v; want none", env.states(),
						env.EntryCount(), kept, err)
				}
			})
		})
	}
}

// TestBothPodsWithTheSameNameAreAudited covers a StatefulSet: a pod replaces a force-deleted pod
// whose sandbox still exists. Both are audited.
func TestBothPodsWithTheSameNameAreAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, replacement := meshPod("web"), meshPod("web")
		replacement.Metadata.UID = "uid-new"
		// Users can set this annotation, by which the kubelet marks a static pod. It must not make
		// the auditor take the old pod for this one.
		replacement.Metadata.Annotations["kubernetes.io/config.hash"] = "uid-web"
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(old) })
		env.addRedirected(replacement)
		settle()
		for _, restart := range []func(){func() {}, env.restart} {
			restart()
			applied := s.applied
			env.flush(s)
			settle()
			if s.applied != applied+1 || env.states() != "2 redirected" {
				t.Errorf("applied %d times, %s; want once, 2 redirected", s.applied-applied, env.states())
			}
		}
	})
}

// TestAStaticPodIsCountedOnceWithoutItsMirrorPod checks that a static pod is audited, and counted
// once, while the kubelet recreates its mirror pod.
func TestAStaticPodIsCountedOnceWithoutItsMirrorPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		static := meshPod("web")
		static.Metadata.UID = "8d6bd6a9cd1d7a9f4b3a5e0f6f2a3c4d"
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(static)
			env.put(mirrorOf(static, "uid-1"), running)
		})
		check := func(when string) {
			t.Helper()
			applied := s.applied
			env.flush(s)
			settle()
			if s.applied != applied+1 || env.states() != "1 redirected" {
				t.Errorf("%s: applied %d times, %s; want once, 1 redirected", when, s.applied-applied, env.states())
			}
			advance(time.Minute)
		}
		check("at the start")
		env.forceDelete(static)
		settle()
		check("without a mirror pod")
		env.restart()
		check("without a mirror pod, after a restart")
		env.put(mirrorOf(static, "uid-2"), running)
		settle()
		check("with the next mirror pod")
		env.restart()
		check("with the next mirror pod, after a restart")
		env.delete(static)
		advance(20 * time.Second)
		if env.states() != "" || env.EntryCount() > 0 {
			t.Errorf("at the end: %s, %d entries; want no state, no entry", env.states(), env.EntryCount())
		}
	})
}

// TestAForgedMirrorPodDoesNotHideAForceDeletedPod covers a pod whose annotation claims that it is
// the mirror pod of a force-deleted pod with the same name. The kubelet deletes the forged pod
// without starting it. The sandbox of the force-deleted pod stays audited.
func TestAForgedMirrorPodDoesNotHideAForceDeletedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
		forged := mirrorOf(web, "uid-forged")
		forged.Metadata.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "443"
		for _, step := range []func(){
			func() { env.put(forged, podcache.PodStatus{Phase: "Pending"}) },
			func() { env.forceDelete(forged) },
		} {
			step()
			settle()
			applied := s.applied
			env.flush(s)
			settle()
			if s.applied != applied+1 || env.states() != "1 redirected" ||
				!rules.Equal(rules.MustCompile(env.redirect(web)), s.rules) {
				t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied-applied, env.states())
			}
		}
	})
}

// TestPodsKnownOnlyFromRecords checks that a pod that only a record of ADD names is not counted if
// its sandbox has ended without DEL, or if ADD did not redirect it, and counts as unknown if its
// sandbox cannot be entered.
func TestPodsKnownOnlyFromRecords(t *testing.T) {
	for name, row := range map[string]struct {
		prepare func(*testEnv, *decide.Pod)
		states  string
	}{
		"the sandbox has ended": {func(env *testEnv, p *decide.Pod) {
			env.removeSandbox(env.addRedirected(p))
		}, ""},
		"ADD did not redirect the pod": {func(env *testEnv, p *decide.Pod) {
			env.addSandbox(p)
			env.record(p, nil)
		}, ""},
		"the sandbox cannot be entered": {func(env *testEnv, p *decide.Pod) {
			env.addRedirected(p)
			env.findErr = errors.New("permission denied")
		}, "1 unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				web := meshPod("web")
				env := startTestEnv(t, nil, func(env *testEnv) {
					row.prepare(env, web)
					env.set(func() { clear(env.items) })
				})
				advance(time.Hour)
				reported := env.takeEvents()
				if env.states() != row.states || env.searches > 80 || reported != "" {
					t.Errorf("%q, %d searches, events %q; want %q, at most 80, no event", env.states(),
						env.searches, reported, row.states)
				}
				if row.states == "" && env.EntryCount() > 0 {
					t.Errorf("the auditor has %d entries, want none", env.EntryCount())
				}
			})
		})
	}
}

// TestAnEndedPodThatIsDeletedLeavesNoEntry checks that the auditor has no entry for a deleted pod
// whose containers had ended.
func TestAnEndedPodThatIsDeletedLeavesNoEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		env := startTestEnv(t, nil, func(env *testEnv) { env.addRedirected(web) })
		env.put(web, podcache.PodStatus{Phase: "Succeeded"})
		settle()
		env.forceDelete(web)
		settle()
		if env.states() != "" || env.EntryCount() > 0 {
			t.Errorf("%s, %d entries; want no state, no entry", env.states(), env.EntryCount())
		}
	})
}

// TestAPodThatAppearsAfterItsRecordIsCountedOnce checks that a pod that is known first from its
// record, and then from the API server, is counted once.
func TestAPodThatAppearsAfterItsRecordIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(web)
			env.set(func() { clear(env.items) })
		})
		env.put(web, running)
		settle()
		env.flush(s)
		if s.applied != 1 || env.states() != "1 redirected" {
			t.Errorf("applied %d times, %s; want once, 1 redirected", s.applied, env.states())
		}
		env.delete(web)
		advance(20 * time.Second)
		if env.states() != "" || env.EntryCount() > 0 {
			t.Errorf("at the end: %s, %d entries; want no state, no entry", env.states(), env.EntryCount())
		}
	})
}

// TestPacketsOfAForceDeletedPodAreCountedOnce checks that the packets of a force-deleted pod are
// counted once.
func TestPacketsOfAForceDeletedPodAreCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, nil)
		web := countedPod("shop", "web")
		s := env.addRedirected(web)
		s.setPackets(rules.OutboundCaptured, 10)
		env.checkCountersAfterAudit("at first", "{shop,,outbound,captured} 10")
		env.forceDelete(web)
		s.setPackets(rules.OutboundCaptured, 12)
		env.checkCountersAfterAudit("after two more packets", "{shop,,outbound,captured} 12")
		env.restart()
		s.setPackets(rules.OutboundCaptured, 13)
		env.checkCountersAfterAudit("after a restart", "{shop,,outbound,captured} 1")
	})
}

// TestRulesOfAForceDeletedPodAreRestored checks that the rules of a force-deleted pod are restored
// when they are removed, by events of its network namespace.
func TestRulesOfAForceDeletedPodAreRestored(t *testing.T) {
	r := newKernelTestEnv(t, map[string]string{"SLUICE_AUDIT_INTERVAL": "1h"})
	ns := netnstest.NewPod(t)
	rs, b := r.add("web", ns, compat.BackendNFT)
	r.start()
	rulestest.Eventually(t, "the pod is audited", func() bool { return r.states() == "1 redirected" })
	r.forceDelete(meshPod("web"))
	if _, err := b.Remove(ns); err != nil {
		t.Fatal(err)
	}
	rulestest.Eventually(t, "the rules are restored", func() bool { return hasRules(t, b, ns, rs) })
	rulestest.Eventually(t, "an event reports the repair", func() bool { return r.takeEvents() == "RedirectRepaired" })
	if got := r.states(); got != "1 redirected" {
		t.Errorf("after the repair: %s, want 1 redirected", got)
	}
}

// mirrorOf returns the mirror pod of a static pod.
func mirrorOf(static *decide.Pod, uid string) *decide.Pod {
	m := *static
	m.Metadata.UID = uid
	m.Metadata.Annotations = map[string]string{
		"sidecar.istio.io/status": "{}", "kubernetes.io/config.mirror": static.Metadata.UID,
	}
	return &m
}
