package audit

import (
	"testing"
	"time"
)

// A visit that does not end is seen however many others do; so is one that is due and never made.
func TestProgress(t *testing.T) {
	s, now := newSchedule(), time.Now()
	check := func(name string, wantVisit uint64, wantBusy bool) {
		t.Helper()
		if visit, busy := s.progress(now); visit != wantVisit || busy != wantBusy {
			t.Errorf("%s: visit %d, busy %v; want %d, %v", name, visit, busy, wantVisit, wantBusy)
		}
	}
	check("nothing is planned", 0, false)
	s.plan("later", now.Add(time.Minute))
	check("nothing is due", 0, false)
	s.plan("stuck", now)
	check("one is due", 0, true)
	s.next(now)
	check("it is visited", 1, true)
	for range 3 {
		s.plan("other", now)
		s.next(now)
		s.done("other")
	}
	check("others go on", 1, true)
	s.done("stuck")
	check("it has ended", 0, false)
}

func TestWaiting(t *testing.T) {
	a := &Auditor{changes: newChanges()}
	if _, busy := a.Waiting(); busy {
		t.Error("busy without a change")
	}
	a.changes.note(podName{"default", "web"})
	before, busy := a.Waiting()
	a.changes.take()
	after, still := a.Waiting()
	if !busy || still || after == before {
		t.Errorf("%d, %v before it is taken; %d, %v after", before, busy, after, still)
	}
}
