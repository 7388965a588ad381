package audit_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/rules"
)

// TestListeningThatFails checks that the timer is used if the watcher cannot be opened, that
// opening is retried, and that audited pods are added to it then.
func TestListeningThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, nil)
		tries := 0
		w.options.Listen = func() (audit.Events, error) {
			if tries++; tries < 4 {
				return nil, errors.New("no capability")
			}
			return ears{w}, nil
		}
		s := w.redirected(meshPod("web"))
		w.start()
		settle()
		if w.added > 0 || w.states() != "1 redirected" {
			t.Errorf("added %d, %s", w.added, w.states())
		}
		w.set(func() { s.has = rules.Ruleset{} })
		pass(2 * time.Minute)
		if s.applied != 1 || tries != 4 || w.added == 0 {
			t.Errorf("applied %d times, %d attempts, added %d", s.applied, tries, w.added)
		}
		w.flush(s)
		if s.applied != 2 || w.metric("sluice_events_lost_total{nftables}") != 3 {
			t.Errorf("applied %d times, counted %v", s.applied, w.counted)
		}
	})
}

// TestLostEventsBeforeAnotherPass checks that a pod that was audited between two losses is audited
// again.
func TestLostEventsBeforeAnotherPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *space
		w := node(t, nil, func(w *testEnv) {
			s = w.redirected(meshPod("web"))
			for i := range 30 { // so that passes are 3 s apart
				w.redirected(meshPod(fmt.Sprintf("other-%d", i)))
			}
		})
		pass(10 * time.Second)
		w.heard <- watch.Event{Lost: true}
		pass(time.Second)
		w.heard <- watch.Event{Lost: true} // the pass follows in two seconds
		pass(time.Second)
		w.put(meshPod("web"), running)
		settle()
		w.set(func() { s.has = rules.Ruleset{} })
		w.heard <- watch.Event{Lost: true}
		pass(2 * time.Second)
		if s.applied != 1 {
			t.Errorf("applied %d times", s.applied)
		}
	})
}

// TestANumberOfANamespaceThatIsUsedAgain covers the inode number of a destroyed namespace, which
// the kernel reuses.
func TestANumberOfANamespaceThatIsUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := meshPod("a"), meshPod("b")
		var old *space
		w := node(t, nil, func(w *testEnv) { old = w.redirected(a) })
		s, r := w.home(b), w.redirect(b)
		w.set(func() {
			delete(w.spaces, w.byNetNS["uid-a"])
			delete(w.spaces, w.byNetNS["uid-b"])
			s.id, s.has, w.byNetNS["uid-b"] = old.id, rules.MustCompile(r), "/run/netns/b"
			w.spaces["/run/netns/b"] = s
		})
		w.record(b, &r)
		w.put(b, running)
		settle()
		w.redirected(a)
		settle()
		if w.flush(s); s.applied != 1 {
			t.Error("events of the other pod's namespace are no longer received")
		}
	})
}
