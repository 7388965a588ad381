package audit_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/rules"
)

// Where nobody can listen, the timer serves, and it is tried again; pods that were visited before are listened to then.
func TestListeningThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
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
			t.Errorf("applied %d times, tried %d times, added %d", s.applied, tries, w.added)
		}
		w.flush(s)
		if s.applied != 2 || w.metric("sluice_events_lost_total{nftables}") != 3 {
			t.Errorf("applied %d times, counted %v", s.applied, w.counted)
		}
	})
}
