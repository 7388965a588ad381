package audit

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// TestProgress checks that Progress returns the number of an audit that does not end, although
// other audits end, and that it reports busy while an audit is due.
func TestProgress(t *testing.T) {
	a := &Auditor{}
	check := func(name string, wantAudit uint64, wantBusy bool) {
		t.Helper()
		if audit, busy := a.Progress(); audit != wantAudit || busy != wantBusy {
			t.Errorf("%s: audit %d, busy %v; want %d, %v", name, audit, busy, wantAudit, wantBusy)
		}
	}
	check("not begun", 0, false)
	a.queue = newQueue(time.Now())
	defer a.queue.ShutDown()
	check("no audit is scheduled", 0, false)
	a.scheduleAudit("later", time.Now().Add(time.Hour))
	check("no audit is due", 0, false)
	a.scheduleAudit("stuck", time.Now())
	check("an audit is due", 0, true)
	ctx, cancel := context.WithCancel(t.Context())
	started, end := make(chan struct{}), make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		a.runWorkers(ctx, func(_ context.Context, uid string) {
			started <- struct{}{}
			if uid == "stuck" {
				<-end
			}
		})
	}()
	<-started
	check("the audit has started", 1, true)
	for i := range 3 {
		a.scheduleAudit(fmt.Sprint(i), time.Now())
		<-started
	}
	check("other audits end", 1, true)
	close(end)
	cancel()
	<-stopped
	check("the audit has ended", 4, false)
}

func TestChangeProgress(t *testing.T) {
	a := &Auditor{changes: workqueue.NewTyped[cluster.Name]()}
	if _, busy := a.ChangeProgress(); busy {
		t.Error("without a change: busy, want not busy")
	}
	a.changes.Add(cluster.Name{Namespace: "default", Name: "web"})
	if _, busy := a.ChangeProgress(); !busy {
		t.Error("with a change in the queue: not busy, want busy")
	}
	a.changes.Get()
	if _, busy := a.ChangeProgress(); busy {
		t.Error("with a change that is being processed: busy, want not busy")
	}
}
