package node

import (
	"context"
	"errors"
	"slices"
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
	// time while there is a conflicting writer. If the writer is another agent of Sluice, the
	// minimum time is retryInterval: pods start with the plugin, whichever agent wrote last.
	minInterval      = 10 * time.Millisecond
	conflictInterval = 20 * time.Millisecond
)

// Run reconciles the node until ctx ends: when the directories or the targets of links in them
// change, after [Node.Wake], and at least every [Settings.Resync]. While Run runs and if publish is
// not nil, publish is called with the status of each reconciliation, including concurrent calls of
// [Node.Reconcile], in the order of the reconciliations. publish must not call Reconcile. Run
// returns the cause of ctx, with an error if the registration of the agent cannot be ended. The
// plugin stays installed.
func (n *Node) Run(ctx context.Context, publish func(Status)) error {
	n.setPublish(publish)
	defer n.setPublish(nil)
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
		n.setWatchErr(watchErr)
		status := n.Reconcile(ctx)
		if ctx.Err() != nil || !n.sleep(ctx, status, watchErr != nil) {
			break
		}
	}
	if registration != nil {
		return errors.Join(context.Cause(ctx), registration.Unregister())
	}
	return context.Cause(ctx)
}

func (n *Node) setPublish(publish func(Status)) {
	n.reconcileLock.Lock()
	defer n.reconcileLock.Unlock()
	n.publish = publish
}

func (n *Node) setWatchErr(err error) {
	n.reconcileLock.Lock()
	defer n.reconcileLock.Unlock()
	n.watchErr = err
}

// sleep waits until the next reconciliation is due. It returns false when ctx ends.
func (n *Node) sleep(ctx context.Context, status Status, polling bool) bool {
	interval := minInterval
	switch writers := status.ConflictingWriters; {
	case len(writers) == 0:
	case slices.ContainsFunc(writers, func(w ConflictingWriter) bool { return !w.isAgent() }):
		interval = conflictInterval
	default:
		interval = retryInterval
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
