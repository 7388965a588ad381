package audit_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/rules"
)

// TestAuditsOfAPodThatKeepsChangingAreLimited checks that the audits of a pod that changes
// continuously are limited, and that its last change is processed.
func TestAuditsOfAPodThatKeepsChangingAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) { s = env.addRedirected(web) })
		for range 3000 {
			env.put(web, running)
			advance(10 * time.Millisecond)
		}
		// Changes cause ten audits without delay, and then at most one every two seconds.
		if s.checked > 30 {
			t.Errorf("compared %d times in 30 s, want at most 30", s.checked)
		}
		web.Metadata.Annotations = nil
		env.put(web, running)
		advance(3 * time.Second)
		if env.states() != "1 redirected" { // the record of ADD still requires it
			t.Errorf("states: %s, want 1 redirected", env.states())
		}
		env.set(func() { s.rules = rules.Ruleset{} })
		env.put(web, running)
		advance(3 * time.Second)
		if s.applied != 1 {
			t.Errorf("after the last change: applied %d times, want 1", s.applied)
		}
	})
}

// TestAPodThatSlowsAuditsIsAuditedLessOften checks that a pod whose audits take long, for example
// because of tens of thousands of rules, is audited less often, and does not delay the audits of
// other pods.
func TestAPodThatSlowsAuditsIsAuditedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s, other *fakeNamespace
		env := startTestEnv(t, nil, func(env *testEnv) {
			s, other = env.addRedirected(meshPod("web")), env.addRedirected(meshPod("other"))
			s.checkTime = 3 * time.Second
		})
		for i := range 600 {
			env.flush(s)
			env.put(meshPod("web"), running)
			if i%100 == 0 {
				env.ruleEvents <- watch.Event{Lost: true}
			}
			advance(time.Second)
		}
		// Audits of a pod may use 5 % of a core. One audit may exceed this limit.
		if elapsed := time.Duration(s.checked) * s.checkTime; elapsed > 10*time.Minute*6/100 {
			t.Errorf("audited for %v of 10 minutes, want at most 6 %%", elapsed)
		}
		if env.flush(other); other.applied != 1 {
			t.Error("the other pod is not repaired immediately")
		}
	})
}

// TestWaitingForTheAPIServerIsNotExpensive checks that the processor time that other work of the
// process uses while an audit waits for the API server does not delay the next audits of the pod.
func TestWaitingForTheAPIServerIsNotExpensive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *fakeNamespace
		env := startTestEnv(t, environment("REPAIR_DELETE_PODS=true"), func(env *testEnv) {
			s = env.addSandbox(web)
			env.requestTime = 3 * time.Second
			env.put(web, running)
		})
		advance(time.Minute)
		// The pod fails although it was repaired. The agent deletes it.
		env.put(web, broken(time.Now()))
		advance(4 * time.Second)
		if env.takeRequests() == "" {
			t.Fatal("the pod was not deleted")
		}
		applied := s.applied
		env.flush(s)
		advance(time.Second)
		if s.applied != applied+1 {
			t.Errorf("repaired %d times within a second after the deletion, want once", s.applied-applied)
		}
	})
}

// TestSearchesForAPodThatKeepsChangingAreLimited checks that a pod that changes continuously, and
// whose sandbox is missing, does not cause continuous searches.
func TestSearchesForAPodThatKeepsChangingAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		env := startTestEnv(t, nil)
		for range 3000 {
			env.put(web, running)
			advance(10 * time.Millisecond)
		}
		// A change causes a search at most every two seconds, in addition to the retries.
		if env.searches > 60 {
			t.Errorf("searched %d times in 30 s, want at most 60", env.searches)
		}
	})
}

// TestChangesWithoutAuditsLeaveNoEntries checks that the auditor has no entries for changed pods if
// audits and repairs are disabled.
func TestChangesWithoutAuditsLeaveNoEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := startTestEnv(t, map[string]string{"SLUICE_AUDIT": "false", "REPAIR_ENABLED": "false"})
		for i := range 100 {
			p := meshPod(fmt.Sprintf("job-%d", i))
			env.put(p, running)
			env.delete(p)
		}
		if entries := env.EntryCount(); entries > 0 {
			t.Errorf("the auditor has %d entries, want none", entries)
		}
	})
}

// TestAttemptsAreForgottenWithThePod checks that the counts of attempts that limit searches and
// repairs are removed when the pod is deleted, even if it is deleted during an audit.
func TestAttemptsAreForgottenWithThePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, unrepairable, deleted := meshPod("lost"), meshPod("unrepairable"), meshPod("deleted")
		env := startTestEnv(t, nil)
		env.put(lost, running)
		namespaces := []*fakeNamespace{env.addRedirected(unrepairable), env.addRedirected(deleted)}
		settle()
		for _, s := range namespaces {
			env.set(func() { s.repairErr = errors.New("no memory") })
		}
		env.set(func() {
			namespaces[1].duringRepair = func() {
				env.delete(deleted)
				time.Sleep(time.Millisecond)
			}
		})
		env.flush(namespaces[0])
		env.flush(namespaces[1])
		advance(time.Minute)
		for p, kept := range map[*decide.Pod]bool{lost: true, unrepairable: true, deleted: false} {
			if n := env.AttemptCount(p.Metadata.UID); (n > 0) != kept {
				t.Errorf("%s: the rate limiters have %d attempts; want any: %t", p.Metadata.Name, n, kept)
			}
			env.delete(p)
		}
		synctest.Wait()
		for _, p := range []*decide.Pod{lost, unrepairable} {
			if n := env.AttemptCount(p.Metadata.UID); n > 0 {
				t.Errorf("%s is deleted: the rate limiters have %d attempts, want none", p.Metadata.Name, n)
			}
		}
	})
}
