package audit

import (
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// A visit that does not end is seen however many others do; so is one that is due and never made.
func TestProgress(t *testing.T) {
	a := &Auditor{}
	check := func(name string, wantVisit uint64, wantBusy bool) {
		t.Helper()
		if visit, busy := a.Progress(); visit != wantVisit || busy != wantBusy {
			t.Errorf("%s: visit %d, busy %v; want %d, %v", name, visit, busy, wantVisit, wantBusy)
		}
	}
	check("not begun", 0, false)
	a.queue = newQueue(time.Now())
	defer a.queue.ShutDown()
	check("nothing is planned", 0, false)
	a.plan("later", time.Now().Add(time.Hour))
	check("nothing is due", 0, false)
	a.plan("stuck", time.Now())
	check("one is due", 0, true)
	a.queue.Get()
	stuck := a.visits.begin()
	check("it is visited", 1, true)
	for range 3 {
		a.visits.end(a.visits.begin())
	}
	check("others go on", 1, true)
	a.visits.end(stuck)
	check("it has ended", 4, false)
}

func TestWaiting(t *testing.T) {
	a := &Auditor{changes: workqueue.NewTyped[podName]()}
	if _, busy := a.Waiting(); busy {
		t.Error("busy without a change")
	}
	a.changes.Add(podName{"default", "web"})
	if _, busy := a.Waiting(); !busy {
		t.Error("not busy with a change")
	}
	a.changes.Get()
	if _, busy := a.Waiting(); busy {
		t.Error("busy with a change that was taken")
	}
}
