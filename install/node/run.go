package node

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
	"github.com/sluice-mesh/sluice/install/journal"
)

const (
	// retry is how long a node that is not as it should be is left alone without an event.
	retry = time.Second
	// gap is the least time between two passes; contestedGap while somebody writes the same files
	// all the time.
	gap          = 10 * time.Millisecond
	contestedGap = 20 * time.Millisecond
)

// Run keeps the node until ctx ends. It looks when something changes in the directories or where
// links in them lead, when it is woken, and by a timer. Publish, if not nil, gets the status of
// each pass, and holds up the next one. When Run ends the plugin stays where it is.
func (n *Node) Run(ctx context.Context, publish func(Status)) error {
	s := n.current()
	registration, err := journal.RegisterAgent(s.StateDir)
	if err != nil {
		// Only uninstalling by hand misses it.
		registration = nil
	}
	watch := dirwatch.New(n.Wake, s.CNIConfDir, s.CNIBinDir)
	defer watch.Close()
	for {
		// Before looking, or a change in between would go unnoticed.
		pollErr := watch.Renew(links(n.current())...)
		status := n.Reconcile(ctx)
		if ctx.Err() != nil {
			break
		}
		if pollErr != nil {
			n.mu.Lock()
			n.status.add(problem(Polling, false,
				"changes on the node are noticed late, by looking every second: %v", pollErr))
			status = n.status
			n.mu.Unlock()
		}
		if publish != nil {
			publish(status)
		}
		if !n.sleep(ctx, status, pollErr != nil) {
			break
		}
	}
	if registration != nil {
		return errors.Join(context.Cause(ctx), registration.Unregister())
	}
	return context.Cause(ctx)
}

// sleep waits for a reason to look again. It returns false when ctx ends.
func (n *Node) sleep(ctx context.Context, status Status, polling bool) bool {
	pause := gap
	if len(status.ConflictingWriters) > 0 {
		pause = contestedGap
	}
	if !wait(ctx, pause, nil) {
		return false
	}
	long := n.current().Resync
	if polling || !status.Installed() {
		long = min(long, retry)
	}
	if status.settling {
		long = min(long, settle)
	}
	return wait(ctx, long, n.wake)
}

// wait returns after d or when woken, true unless ctx has ended.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return true
}
