package listen

import (
	"context"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
	"github.com/sluice-mesh/sluice/install/notify"
)

const (
	// checkInterval is the interval of checks while changes of the directory cannot be used: while
	// they are not reported, while the socket cannot be created, and while the socket belongs to
	// another agent, because the directory does not change when that agent ends.
	checkInterval = time.Second
	// watchedInterval is the interval of checks in addition to the checks after reported changes.
	// It is long, because waking up each second costs more than a check.
	watchedInterval = 10 * time.Second
	// minCheckInterval is the minimum time between two checks.
	minCheckInterval = 10 * time.Millisecond
)

// A socketWatcher determines the times at which the socket is checked.
type socketWatcher struct {
	watch     *dirwatch.Watch
	changed   notify.Channel // the directory has changed
	unwatched bool           // changes are not reported
	interval  time.Duration  // watchedInterval, except in tests
}

func newSocketWatcher(socket string) *socketWatcher {
	w := &socketWatcher{changed: notify.New(), interval: watchedInterval}
	w.watch = dirwatch.New(w.changed.Notify, filepath.Dir(socket))
	return w
}

// renew renews the watch of the directory. It must be called before each check, so that no change
// is missed.
func (w *socketWatcher) renew() { w.unwatched = w.watch.Renew() != nil }

// wait waits until the next check is due, and returns true. It returns false when the context ends.
// inPlace is set if the socket exists and belongs to this process.
func (w *socketWatcher) wait(ctx context.Context, inPlace bool) bool {
	changed, interval := w.changed, w.interval
	if w.unwatched || !inPlace {
		// Changes are ignored, because failed attempts also change the directory.
		changed, interval = nil, checkInterval
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(interval):
		return true
	case <-changed:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(minCheckInterval):
		return true
	}
}

func (w *socketWatcher) close() { w.watch.Close() }
