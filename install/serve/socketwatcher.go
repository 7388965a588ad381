package serve

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-mesh/sluice/install/dirwatch"
)

const (
	// guardTime is how often the socket is looked at while another agent has it, whose death
	// changes nothing in the directory, and while it cannot be made or nobody tells of changes.
	guardTime = time.Second
	// netTime is how often it is looked at otherwise, when it is told of changes.
	netTime = 10 * time.Second
	// guardGap is the least time between two looks, whoever changes the directory.
	guardGap = 10 * time.Millisecond
)

// A socketWatcher says when to look at the socket again: often enough, and no oftener, since a
// process that wakes up each second uses more of a processor by that than by its work.
type socketWatcher struct {
	watch   *dirwatch.Watch
	changed chan struct{} // has room for one
	blind   bool          // nobody tells of changes
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

// renew comes before each look, or a change in between would go unnoticed.
func (l *socketWatcher) renew() { l.blind = l.watch.Renew() != nil }

// wait waits until it is time to look again. It returns false when the context ends.
func (l *socketWatcher) wait(ctx context.Context, inPlace bool) bool {
	changed, pause := l.changed, netTime
	if l.blind || !inPlace {
		changed, pause = nil, guardTime // what is tried in vain changes the directory too
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

// guard returns the listener that leads here: the given one, as long as nobody has taken it away,
// or a new one.
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
