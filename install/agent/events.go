package agent

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A notice is a current problem in the form of an event. Count is the number of occurrences if
// known; otherwise each begin of the problem counts.
type problemEvent struct {
	reason, message string
	count           int
}

const (
	// eventTime limits a request for an event, eventRetry is the time between retries.
	eventTime  = 10 * time.Second
	eventRetry = 30 * time.Second
	// recovered is the reason of the event after the last problem has ended.
	recovered        = "Installed"
	recoveredMessage = "the plugin is in the node's CNI chain, and a pod that starts now gets its redirection"
)

// nodeEvents reports problems of the node, and their end, as events. It compares the current
// problems with the reported ones, so that nothing is lost while the API server is unavailable, and
// nothing outdated is reported afterwards. A repeated problem is reported each time;
// [cluster.Client.SendEvent] counts it in one event.
type nodeEvents struct {
	send func(context.Context, cluster.Event) error
	node string
	log  *zap.Logger
	wake chan struct{}

	mu       sync.Mutex
	now      []problemEvent
	reported map[string]reportedProblem
	open     bool // a warning was told that is not over
	past     []problemEvent
}

// reportedProblem is the last reported event of a reason; it remains while the problem lasts.
type reportedProblem struct {
	stands bool
	count  int
}

// A nodeEvent is an event, with the number of occurrences so far if known.
type nodeEvent struct {
	cluster.Event
	total int
}

func newNodeEvents(
	tell func(context.Context, cluster.Event) error, nodeName string, log *zap.Logger,
) *nodeEvents {
	return &nodeEvents{
		send: tell, node: nodeName, log: log, wake: make(chan struct{}, 1),
		reported: map[string]reportedProblem{},
	}
}

// set sets the current problems.
func (a *nodeEvents) set(now []problemEvent) {
	a.mu.Lock()
	a.now = now
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// notePast reports a warning once about a problem that has ended or ends this process, which could
// not be reported while it lasted.
func (a *nodeEvents) notePast(n problemEvent) {
	a.mu.Lock()
	a.past = append(a.past, n)
	a.mu.Unlock()
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// run reports events until ctx is done.
func (a *nodeEvents) run(ctx context.Context) {
	retry := time.NewTicker(eventRetry)
	defer retry.Stop()
	for {
		wake := a.wake
		if !a.deliver(ctx) {
			wake = nil // an API server that is away is not asked with each pass over the node
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-retry.C:
		}
	}
}

// deliver reports the pending events, and returns whether all of them were delivered.
func (a *nodeEvents) deliver(ctx context.Context) bool {
	for _, e := range a.due(time.Now()) {
		bounded, cancel := context.WithTimeout(ctx, eventTime)
		err := a.send(bounded, e.Event)
		cancel()
		if err != nil {
			a.log.Warn("the node's events do not know it yet", zap.String("reason", e.Reason),
				zap.Error(err))
			return false
		}
		a.note(e)
	}
	return true
}

// due returns the pending events.
func (a *nodeEvents) due(at time.Time) []nodeEvent {
	a.mu.Lock()
	defer a.mu.Unlock()
	event := cluster.Event{About: cluster.NodeObject(a.node), Node: a.node, Time: at}
	var events []nodeEvent
	for _, n := range a.past {
		e := event
		e.Warning, e.Reason, e.Message = true, n.reason, n.message
		events = append(events, nodeEvent{Event: e})
	}
	wrong := map[string]bool{}
	for _, n := range a.now {
		last := a.reported[n.reason]
		if more := n.since(last); !wrong[n.reason] && more > 0 {
			e := event
			e.Warning, e.Reason, e.Message, e.Count = true, n.reason, n.message, more
			events = append(events, nodeEvent{e, n.count})
		}
		wrong[n.reason] = true
	}
	for reason := range a.reported {
		if !wrong[reason] {
			delete(a.reported, reason)
		}
	}
	if len(a.now) == 0 && a.open {
		event.Reason, event.Message = recovered, recoveredMessage
		events = append(events, nodeEvent{event, 0})
	}
	return events
}

// since returns the number of occurrences since the last report.
func (n problemEvent) since(last reportedProblem) int {
	switch {
	case !last.stands, n.count < last.count: // or it is counted anew
		return max(1, n.count)
	case n.count > last.count:
		return n.count - last.count
	}
	return 0
}

// note records a reported event.
func (a *nodeEvents) note(e nodeEvent) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.past) > 0 && a.past[0].reason == e.Reason && a.past[0].message == e.Message {
		a.past = a.past[1:]
		return
	}
	a.open = e.Warning
	if e.Warning {
		a.reported[e.Reason] = reportedProblem{true, e.total}
	}
}
