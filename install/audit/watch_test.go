package audit_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/rules"
)

// TestASubscriptionThatFailsIsRetried covers a watcher that cannot be opened: pods are audited at
// the audit interval, opening is retried, and then the audited pods are added to the watcher.
func TestASubscriptionThatFailsIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newTestEnv(t, nil)
		tries := 0
		env.options.Listen = func() (watch.Events, error) {
			if tries++; tries < 4 {
				return nil, errors.New("no capability")
			}
			return fakeSubscription{env}, nil
		}
		s := env.addRedirected(meshPod("web"))
		env.start()
		settle()
		if env.added > 0 || env.states() != "1 redirected" {
			t.Errorf("%d namespaces were added to the watcher, %s; want none, 1 redirected", env.added, env.states())
		}
		env.set(func() { s.rules = rules.Ruleset{} })
		advance(2 * time.Minute)
		if s.applied != 1 || tries != 4 || env.added == 0 {
			t.Errorf("applied %d times, %d attempts, %d namespaces were added to the watcher; want once, 4, some",
				s.applied, tries, env.added)
		}
		env.flush(s)
		if s.applied != 2 || env.metric("sluice_events_lost_total{nftables}") != 3 {
			t.Errorf("applied %d times, counted %v; want twice, 3 lost events", s.applied, env.counted)
		}
	})
}

// TestEachLossAuditsAPodAgain checks that a pod that was audited between two losses is audited
// again.
func TestEachLossAuditsAPodAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s = env.addRedirected(meshPod("web"))
			for i := range 30 { // so that audits of all pods are 3 s apart
				env.addRedirected(meshPod(fmt.Sprintf("other-%d", i)))
			}
		})
		advance(10 * time.Second)
		env.ruleEvents <- watch.Event{Lost: true}
		advance(time.Second)
		env.ruleEvents <- watch.Event{Lost: true} // the audit follows in two seconds
		advance(time.Second)
		env.put(meshPod("web"), running)
		settle()
		env.set(func() { s.rules = rules.Ruleset{} })
		env.ruleEvents <- watch.Event{Lost: true}
		advance(2 * time.Second)
		if s.applied != 1 {
			t.Errorf("applied %d times, want once", s.applied)
		}
	})
}

// TestAReusedInodeNumberBelongsToTheNewPod covers the inode number of a destroyed network
// namespace, which the kernel reuses for the network namespace of a new pod.
func TestAReusedInodeNumberBelongsToTheNewPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := meshPod("a"), meshPod("b")
		var old *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { old = env.addRedirected(a) })
		s, r := env.addSandbox(b), env.redirect(b)
		env.set(func() {
			delete(env.namespaces, env.netnsPaths["uid-a"])
			delete(env.namespaces, env.netnsPaths["uid-b"])
			s.id, s.rules, env.netnsPaths["uid-b"] = old.id, rules.MustCompile(r), "/run/netns/b"
			env.namespaces["/run/netns/b"] = s
		})
		env.record(b, &r)
		env.put(b, running)
		settle()
		env.addRedirected(a)
		settle()
		if env.flush(s); s.applied != 1 {
			t.Error("events of the new pod's namespace are no longer received")
		}
	})
}
