package listen

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

const (
	// checkInterval is the interval of checks while another agent owns the socket, whose end does
	// not change the directory, and while the socket cannot be created or changes are not reported.
	checkInterval = time.Second
	// watchedInterval is the interval of other checks, in addition to reported changes.
	watchedInterval = 10 * time.Second
	// minCheckInterval is the minimum time between two checks.
	minCheckInterval = 10 * time.Millisecond
)

// A socketWatcher determines the times of checks of the socket. They are rare, because waking up
// each second costs more than the check.
type socketWatcher struct {
	watch     *dirwatch.Watch
	changed   chan struct{} // buffered
	unwatched bool          // changes are not reported
	interval  time.Duration // watchedInterval, except in tests
}

func newSocketWatcher(socket string) *socketWatcher {
	w := &socketWatcher{changed: make(chan struct{}, 1), interval: watchedInterval}
	w.watch = dirwatch.New(func() {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}, filepath.Dir(socket))
	return w
}

// renew is called before each check, so that no change is missed.
func (w *socketWatcher) renew() { w.unwatched = w.watch.Renew() != nil }

// wait waits until the next check. It returns false when the context ends.
func (w *socketWatcher) wait(ctx context.Context, owned bool) bool {
	changed, interval := w.changed, w.interval
	if w.unwatched || !owned {
		changed, interval = nil, checkInterval // failed attempts also change the directory
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-changed:
	}
	timer.Reset(minCheckInterval)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (w *socketWatcher) close() { w.watch.Close() }
