package serve

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

const (
	// guardTime is the interval of checks while another agent owns the socket, whose end does not
	// change the directory, and while the socket cannot be created or changes are not reported.
	guardTime = time.Second
	// netTime is the interval of other checks, in addition to reported changes.
	netTime = 10 * time.Second
	// guardGap is the minimum time between two checks.
	guardGap = 10 * time.Millisecond
)

// A socketWatcher determines the times of checks of the socket. They are rare, because waking up
// each second costs more than the check.
type socketWatcher struct {
	watch   *dirwatch.Watch
	changed chan struct{} // has room for one
	blind   bool          // changes are not reported
}

func newSocketWatcher(socket string) *socketWatcher {
	l := &socketWatcher{changed: make(chan struct{}, 1)}
	l.watch = dirwatch.New(func() {
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}, filepath.Dir(socket))
	return l
}

// renew is called before each check, so that no change is missed.
func (l *socketWatcher) renew() { l.blind = l.watch.Renew() != nil }

// wait waits until the next check. It returns false when the context ends.
func (l *socketWatcher) wait(ctx context.Context, inPlace bool) bool {
	changed, pause := l.changed, netTime
	if l.blind || !inPlace {
		changed, pause = nil, guardTime // failed attempts change the directory too
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-changed:
	}
	timer.Reset(guardGap)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (l *socketWatcher) close() { l.watch.Close() }

// guard returns the listener at the path: the given one while its socket is in place, or a new one.
func (s *Server) guard(current *listener) (*listener, error) {
	if current != nil && (current.inPlace() || answers(s.options.Socket)) {
		return current, nil
	}
	next, err := open(s.options.Socket)
	if err != nil {
		return current, err
	}
	if current != nil {
		s.options.Failed(fmt.Errorf("socket %s was gone, and is made again", s.options.Socket))
	}
	return next, nil
}
