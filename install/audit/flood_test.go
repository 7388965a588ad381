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

// TestPodThatKeepsChanging checks that a pod whose annotations change continuously costs no more
// than one whose rules change, and that its last state is applied.
func TestPodThatKeepsChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		var s *space
		w := node(t, nil, func(w *testEnv) { s = w.redirected(web) })
		for range 3000 {
			w.put(web, running)
			pass(10 * time.Millisecond)
		}
		if s.checked > 30 {
			t.Errorf("compared %d times in 30 s", s.checked)
		}
		web.Metadata.Annotations = nil
		w.put(web, running)
		pass(3 * time.Second)
		if w.states() != "1 redirected" { // according to its record
			t.Error(w.states())
		}
		w.set(func() { s.has = rules.Ruleset{} })
		w.put(web, running)
		pass(3 * time.Second)
		if s.applied != 1 {
			t.Errorf("applied %d times", s.applied)
		}
	})
}

// TestPodThatSlowsReconciliation checks that a pod whose audits take long because of ten thousands
// of rules is audited less often, and does not delay others.
func TestPodThatSlowsReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s, other *space
		w := node(t, nil, func(w *testEnv) {
			s, other = w.redirected(meshPod("web")), w.redirected(meshPod("other"))
			s.slow = 3 * time.Second
		})
		for i := range 600 {
			w.flush(s)
			w.put(meshPod("web"), running)
			if i%100 == 0 {
				w.heard <- watch.Event{Lost: true}
			}
			pass(time.Second)
		}
		if elapsed := time.Duration(s.checked) * s.slow; elapsed > 10*time.Minute*6/100 {
			t.Errorf("audited for %v of 10 minutes", elapsed)
		}
		if w.flush(other); other.applied != 1 {
			t.Error("the other pod waits")
		}
	})
}

// TestPodThatKeepsChangingAndIsNotLocated checks the same for searches for a missing sandbox.
func TestPodThatKeepsChangingAndIsNotLocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := meshPod("web")
		w := node(t, nil)
		for range 3000 {
			w.put(web, running)
			pass(10 * time.Millisecond)
		}
		if w.searches > 60 {
			t.Errorf("searched %d times in 30 s", w.searches)
		}
	})
}

// TestChangesWithoutAWatcher checks that pods leave nothing behind if no audit is enabled.
func TestChangesWithoutAWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := node(t, map[string]string{"SLUICE_AUDIT": "false", "REPAIR_ENABLED": "false"})
		for i := range 100 {
			p := meshPod(fmt.Sprintf("job-%d", i))
			w.put(p, running)
			w.delete(p)
		}
		if held := w.Held(); held > 0 {
			t.Errorf("%d entries are kept", held)
		}
	})
}

// TestAttemptsOfAPodThatIsGone checks that the attempts that limit searches and repairs are removed
// with a deleted pod, also if it is deleted during an audit.
func TestAttemptsOfAPodThatIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nowhere, refusing, leaving := meshPod("nowhere"), meshPod("refusing"), meshPod("leaving")
		w := node(t, nil)
		w.put(nowhere, running)
		spaces := []*space{w.redirected(refusing), w.redirected(leaving)}
		settle()
		for _, s := range spaces {
			w.set(func() { s.refuse = errors.New("no memory") })
		}
		w.set(func() {
			spaces[1].during = func() {
				w.delete(leaving)
				time.Sleep(time.Millisecond)
			}
		})
		w.flush(spaces[0])
		w.flush(spaces[1])
		pass(time.Minute)
		for p, kept := range map[*decide.Pod]bool{nowhere: true, refusing: true, leaving: false} {
			if n := w.Retries(p.Metadata.UID); (n > 0) != kept {
				t.Errorf("%s: %d attempts are kept", p.Metadata.Name, n)
			}
			w.delete(p)
		}
		synctest.Wait()
		for _, p := range []*decide.Pod{nowhere, refusing} {
			if n := w.Retries(p.Metadata.UID); n > 0 {
				t.Errorf("%s is deleted: %d attempts are kept", p.Metadata.Name, n)
			}
		}
	})
}
