package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A problemEvent is a current problem in the form of an event. Count is the number of occurrences
// if known; otherwise each start of the problem counts.
type problemEvent struct {
	reason, message string
	count           int
}

const (
	// eventTimeout limits a request for an event, eventRetry is the mean time between retries.
	eventTimeout = 10 * time.Second
	eventRetry   = 30 * time.Second
	// recovered is the reason of the event after the last problem has ended.
	recovered        = "Installed"
	recoveredMessage = "the plugin is in the node's CNI chain, and new pods are redirected"
)

// nodeEvents reports problems of the node, and their end, as events. It compares the current
// problems with the reported ones, so that nothing is lost while the API server is unavailable, and
// nothing outdated is reported afterwards. A repeated problem is reported each time;
// [cluster.Client.SendEvent] counts it in one event.
type nodeEvents struct {
	send func(context.Context, cluster.Event) error
	node string
	log  *zap.Logger
	wake chan struct{} // something may be due
	// answered ends the pause after a failure.
	answered chan struct{}

	mu       sync.Mutex
	now      []problemEvent
	reported map[string]reportedProblem
	open     bool // a warning was reported, and its end was not
	past     []problemEvent
}

// reportedProblem is the last reported event of a reason; it remains while the problem lasts.
type reportedProblem struct {
	active bool
	count  int
}

// A nodeEvent is an event, with the number of occurrences so far if known.
type nodeEvent struct {
	cluster.Event
	total int
}

func newNodeEvents(
	send func(context.Context, cluster.Event) error, nodeName string, log *zap.Logger,
) *nodeEvents {
	return &nodeEvents{
		send: send, node: nodeName, log: log, wake: make(chan struct{}, 1),
		answered: make(chan struct{}, 1),
		reported: map[string]reportedProblem{},
	}
}

// set sets the current problems.
func (ne *nodeEvents) set(now []problemEvent) {
	ne.mu.Lock()
	ne.now = now
	ne.mu.Unlock()
	notify(ne.wake)
}

// retry sends pending events without waiting for the end of the pause, because the API server
// accepts requests again.
func (ne *nodeEvents) retry() { notify(ne.answered) }

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// notePast reports a warning once about a problem that has ended or ends this process, which could
// not be reported while it lasted.
func (ne *nodeEvents) notePast(n problemEvent) {
	ne.mu.Lock()
	ne.past = append(ne.past, n)
	ne.mu.Unlock()
	notify(ne.wake)
}

// run reports events until ctx is done.
func (ne *nodeEvents) run(ctx context.Context) {
	for {
		wake := ne.wake
		if !ne.deliver(ctx) {
			wake = nil // an unavailable API server gets no request with each reconciliation
		}
		// Random, because all agents retry when the API server is away.
		retry := time.NewTimer(eventRetry/2 + rand.N(eventRetry))
		select {
		case <-ctx.Done():
			retry.Stop()
			return
		case <-wake:
		case <-ne.answered:
		case <-retry.C:
		}
		retry.Stop()
	}
}

// deliver reports the pending events, and returns whether all of them were delivered.
func (ne *nodeEvents) deliver(ctx context.Context) bool {
	for _, e := range ne.due(time.Now()) {
		deadlineCtx, cancel := context.WithTimeout(ctx, eventTimeout)
		err := ne.send(deadlineCtx, e.Event)
		cancel()
		if err != nil {
			ne.log.Warn("cannot send an event of the node yet", zap.String("reason", e.Reason),
				zap.Error(err))
			return false
		}
		ne.note(e)
	}
	return true
}

// due returns the pending events.
func (ne *nodeEvents) due(at time.Time) []nodeEvent {
	ne.mu.Lock()
	defer ne.mu.Unlock()
	event := cluster.Event{About: cluster.NodeObject(ne.node), Node: ne.node, Time: at}
	var events []nodeEvent
	for _, n := range ne.past {
		e := event
		e.Warning, e.Reason, e.Message = true, n.reason, n.message
		events = append(events, nodeEvent{Event: e})
	}
	wrong := map[string]bool{}
	for _, n := range ne.now {
		last := ne.reported[n.reason]
		if omitted := n.since(last); !wrong[n.reason] && omitted > 0 {
			e := event
			e.Warning, e.Reason, e.Message, e.Count = true, n.reason, n.message, omitted
			events = append(events, nodeEvent{e, n.count})
		}
		wrong[n.reason] = true
	}
	for reason := range ne.reported {
		if !wrong[reason] {
			delete(ne.reported, reason)
		}
	}
	if len(ne.now) == 0 && ne.open {
		event.Reason, event.Message = recovered, recoveredMessage
		events = append(events, nodeEvent{event, 0})
	}
	return events
}

// since returns the number of occurrences since the last report.
func (n problemEvent) since(last reportedProblem) int {
	switch {
	case !last.active, n.count < last.count: // or the count restarted
		return max(1, n.count)
	case n.count > last.count:
		return n.count - last.count
	}
	return 0
}

// note records a reported event.
func (ne *nodeEvents) note(e nodeEvent) {
	ne.mu.Lock()
	defer ne.mu.Unlock()
	if len(ne.past) > 0 && ne.past[0].reason == e.Reason && ne.past[0].message == e.Message {
		ne.past = ne.past[1:]
		return
	}
	ne.open = e.Warning
	if e.Warning {
		ne.reported[e.Reason] = reportedProblem{true, e.total}
	}
}
