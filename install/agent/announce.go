package agent

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A notice is what is wrong now, in the form of an event.
type notice struct{ reason, message string }

const (
	// announcePause is the least time between two events of the same reason: what comes and goes must not flood the node's events.
	announcePause = 5 * time.Minute
	// announceTime bounds one event, announceRetry is after how long one is tried again.
	announceTime  = 10 * time.Second
	announceRetry = 30 * time.Second
	// recovered is the reason of the event that nothing is wrong any more.
	recovered        = "Installed"
	recoveredMessage = "the plugin is in the node's CNI chain, and a pod that starts now gets its redirection"
)

// An announcer tells the node's events what is wrong, and that it is over. It compares what should be told with what was, so that
// nothing is lost while the API server is away, and nothing old is told afterwards.
type announcer struct {
	tell func(context.Context, cluster.Event) error
	node string
	log  *zap.Logger
	wake chan struct{}

	mu   sync.Mutex
	now  []notice
	told map[string]told
	open bool // a warning was told that is not over
}

// told is the last event of a reason; it stands as long as the trouble lasts.
type told struct {
	at     time.Time
	stands bool
}

func newAnnouncer(tell func(context.Context, cluster.Event) error, nodeName string, log *zap.Logger) *announcer {
	return &announcer{tell: tell, node: nodeName, log: log, wake: make(chan struct{}, 1), told: map[string]told{}}
}

// set says what is wrong now.
func (a *announcer) set(now []notice) {
	a.mu.Lock()
	a.now = now
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run tells until ctx ends.
func (a *announcer) run(ctx context.Context) {
	retry := time.NewTicker(announceRetry)
	defer retry.Stop()
	for {
		wake := a.wake
		for _, e := range a.due(time.Now()) {
			bounded, cancel := context.WithTimeout(ctx, announceTime)
			err := a.tell(bounded, e)
			cancel()
			if err != nil {
				a.log.Warn("the node's events do not know it yet", zap.String("reason", e.Reason), zap.Error(err))
				wake = nil // an API server that is away is not asked with each pass over the node
				break
			}
			a.note(e)
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-retry.C:
		}
	}
}

// due returns the events that should be told now.
func (a *announcer) due(at time.Time) []cluster.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	event := cluster.Event{About: cluster.NodeObject(a.node), Node: a.node, Time: at}
	var events []cluster.Event
	wrong := map[string]bool{}
	for _, n := range a.now {
		last, known := a.told[n.reason]
		if !wrong[n.reason] && !last.stands && (!known || at.Sub(last.at) >= announcePause) {
			e := event
			e.Warning, e.Reason, e.Message = true, n.reason, n.message
			events = append(events, e)
		}
		wrong[n.reason] = true
	}
	for reason, last := range a.told {
		if last.stands && !wrong[reason] {
			a.told[reason] = told{at: last.at}
		}
	}
	if len(a.now) == 0 && a.open {
		event.Reason, event.Message = recovered, recoveredMessage
		events = append(events, event)
	}
	return events
}

// note remembers that an event was told.
func (a *announcer) note(e cluster.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = e.Warning
	if e.Warning {
		a.told[e.Reason] = told{e.Time, true}
	}
}
