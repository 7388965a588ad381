package node

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
	"github.com/sluice-mesh/sluice/install/journal"
)

const (
	// retryInterval is the maximum time between reconciliations while the node has a blocking
	// problem, or while the directories cannot be watched. After a failed write it is also the
	// minimum time.
	retryInterval = time.Second
	// minInterval is the minimum time between two reconciliations, and conflictInterval the minimum
	// time while there is a conflicting writer.
	minInterval      = 10 * time.Millisecond
	conflictInterval = 20 * time.Millisecond
)

// Run reconciles the node until ctx ends: when the directories or the targets of links in them
// change, after [Node.Wake], and at least every [Settings.Resync]. If publish is not nil, Run calls
// publish with the status of each reconciliation. Run returns the cause of ctx, with an error if
// the registration of the agent cannot be ended. The plugin stays installed.
func (n *Node) Run(ctx context.Context, publish func(Status)) error {
	s := n.currentSettings()
	registration, err := journal.RegisterAgent(s.StateDir)
	if err != nil {
		// Ignore the error: the only effect is that a manual uninstallation is not rejected while
		// the agent runs.
		registration = nil
	}
	watch := dirwatch.New(n.Wake, s.CNIConfDir, s.CNIBinDir)
	defer watch.Close()
	for {
		// Renew the watch before the reconciliation: in the reverse order, a change between the two
		// would not be detected.
		watchErr := watch.Renew(links(n.currentSettings())...)
		status := n.Reconcile(ctx)
		if ctx.Err() != nil {
			break
		}
		if watchErr != nil {
			n.mu.Lock()
			n.status.add(newProblem(WatchFailed, false, "cannot watch the directories, "+
				"so changes are detected by polling every second: %v", watchErr))
			status = n.status
			n.mu.Unlock()
		}
		if publish != nil {
			publish(status)
		}
		if !n.sleep(ctx, status, watchErr != nil) {
			break
		}
	}
	if registration != nil {
		return errors.Join(context.Cause(ctx), registration.Unregister())
	}
	return context.Cause(ctx)
}

// sleep waits until the next reconciliation is due. It returns false when ctx ends.
func (n *Node) sleep(ctx context.Context, status Status, polling bool) bool {
	interval := minInterval
	if len(status.ConflictingWriters) > 0 {
		interval = conflictInterval
	}
	if !wait(ctx, interval, nil) {
		return false
	}
	if status.writeFailed {
		// Ignore events, because the failed attempt may have caused them.
		return wait(ctx, retryInterval-interval, nil)
	}
	timeout := n.currentSettings().Resync
	if polling || !status.Installed() {
		timeout = min(timeout, retryInterval)
	}
	if status.incomplete {
		timeout = min(timeout, invalidTolerance)
	}
	return wait(ctx, timeout, n.wake)
}

// wait waits for d or for wake, and returns true. It returns false when ctx ends.
func wait(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
	case <-wake:
	}
	return true
}
