package agent

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/notify"
)

// A problemEvent is an event about a problem of the node.
type problemEvent struct {
	reason, message string
	// count is the number of occurrences; 0 means one occurrence each time the problem begins.
	count int
}

const (
	eventTimeout = 10 * time.Second // of a request that sends an event
	eventRetry   = 30 * time.Second // mean time between retries
	// settleTime is the time for which a problem without a count must exist before it is reported:
	// a problem may exist for a moment while a program replaces its files or an API server starts.
	settleTime = 5 * time.Second
	// noNetworkSettleTime replaces settleTime for a node without a network configuration: the
	// program that writes the configuration may start later than the agent, and until then no pod
	// with a network starts.
	noNetworkSettleTime = time.Minute
	// maxPast is the number of unreported past problems from which on problems with the same reason
	// are combined.
	maxPast = 16
	// recovered is the reason of the event that reports the end of the last problem.
	recovered        = "Installed"
	recoveredMessage = "the plugin is in the node's CNI chain, and new pods are redirected"
)

// nodeEvents reports lasting problems of the node, and their end, as events. It compares the
// current problems with the reported ones: after an outage of the API server it reports only the
// problems that still exist, and the past problems of notePast. A problem that occurs again is
// reported again; [cluster.Client.SendEvent] counts the repetitions in one event.
type nodeEvents struct {
	send func(context.Context, cluster.Event) error
	node string
	log  *zap.Logger
	wake notify.Channel // the problems may have changed
	// retryNow ends the pause after a failure.
	retryNow notify.Channel
	settle   time.Duration // settleTime; another value only in tests

	mu       sync.Mutex
	current  []problemEvent
	ready    bool                 // the node is ready
	since    map[string]time.Time // beginning of the current problems, by reason
	reported map[string]int       // number of reported occurrences of the current problems, by reason
	warned   bool                 // a problem was reported, but not yet the end of all problems
	past     []problemEvent       // reported once each; see notePast
}

// A nodeEvent is an event about the node.
type nodeEvent struct {
	cluster.Event
	total int // number of occurrences of the problem; 0 if it is not counted
}

func newNodeEvents(
	send func(context.Context, cluster.Event) error, nodeName string, log *zap.Logger,
) *nodeEvents {
	return &nodeEvents{
		send: send, node: nodeName, log: log, wake: notify.New(),
		retryNow: notify.New(), settle: settleTime,
		reported: map[string]int{},
	}
}

// set sets the current problems, and whether the node is ready. A node without problems may not be
// ready yet, for example before the reconciliation that inserts the plugin. The end of the problems
// is reported when the node is ready.
func (ne *nodeEvents) set(current []problemEvent, ready bool) {
	since := make(map[string]time.Time, len(current))
	ne.mu.Lock()
	for _, p := range current {
		begin, known := ne.since[p.reason]
		if !known {
			begin = time.Now()
		}
		since[p.reason] = begin
	}
	ne.current, ne.since, ne.ready = current, since, ready
	ne.mu.Unlock()
	ne.wake.Notify()
}

// retry sends pending events without waiting for the end of the pause, because the API server
// accepts requests again.
func (ne *nodeEvents) retry() { ne.retryNow.Notify() }

// notePast reports a problem once. It is for problems that have already ended, and for a problem
// that ends this process. Equal problems are combined into one event with a count; if there are
// many problems, those with the same reason too.
func (ne *nodeEvents) notePast(p problemEvent) {
	p.count = max(1, p.count)
	ne.mu.Lock()
	defer ne.mu.Unlock()
	defer ne.wake.Notify()
	for i := range slices.Backward(ne.past) {
		last := &ne.past[i]
		if last.reason == p.reason && (last.message == p.message || len(ne.past) >= maxPast) {
			last.message = p.message
			last.count += p.count
			return
		}
	}
	ne.past = append(ne.past, p)
}

// run reports events until ctx is done.
func (ne *nodeEvents) run(ctx context.Context) {
	for {
		wake := ne.wake
		// The delay is random, because all agents retry during an outage of the API server.
		delay := eventRetry/2 + rand.N(eventRetry)
		now := time.Now()
		if ne.deliver(ctx, now, ne.settle) {
			delay = min(delay, ne.untilSettled(now))
		} else {
			wake = nil // do not send a request with each reconciliation during an outage
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-ne.retryNow:
		case <-time.After(delay):
		}
	}
}

// untilSettled returns the time until the next problem has existed for its settleTime, but at most
// eventRetry.
func (ne *nodeEvents) untilSettled(now time.Time) time.Duration {
	ne.mu.Lock()
	defer ne.mu.Unlock()
	next := eventRetry
	for _, p := range ne.current {
		if wait := ne.since[p.reason].Add(p.settleTime(ne.settle)).Sub(now); wait > 0 {
			next = min(next, wait)
		}
	}
	return next
}

// settleTime returns the time for which the problem must exist before it is reported: 0 if settle
// is 0 or the problem has a count, noNetworkSettleTime for a missing network configuration, and
// settle otherwise.
func (p problemEvent) settleTime(settle time.Duration) time.Duration {
	switch {
	case settle == 0, p.count > 0:
		return 0
	case p.reason == string(node.NoNetworkConfiguration):
		return noNetworkSettleTime
	}
	return settle
}

// deliver sends the pending events until a request fails, and reports whether all were sent. It
// drops an event that the API server rejects permanently. A denied permission applies to all
// events, and may be granted later. See [problemEvent.settleTime] for settle.
func (ne *nodeEvents) deliver(ctx context.Context, now time.Time, settle time.Duration) bool {
	for _, e := range ne.pendingEvents(now, settle) {
		deadlineCtx, cancel := context.WithTimeout(ctx, eventTimeout)
		err := ne.send(deadlineCtx, e.Event)
		cancel()
		switch {
		case err == nil:
		case cluster.IsPermanent(err) && !cluster.IsRefused(err):
			ne.log.Warn("an event about the node cannot be sent, and is dropped",
				zap.String("reason", e.Reason), zap.Error(err))
		default:
			ne.log.Warn("an event about the node cannot be sent yet", zap.String("reason", e.Reason),
				zap.Error(err))
			return false
		}
		ne.markReported(e)
	}
	return true
}

// pendingEvents returns the events that have not been reported, and removes ended problems from
// reported. See deliver for the parameters.
func (ne *nodeEvents) pendingEvents(now time.Time, settle time.Duration) []nodeEvent {
	ne.mu.Lock()
	defer ne.mu.Unlock()
	var events []nodeEvent
	add := func(warning bool, reason, message string, count, total int) {
		events = append(events, nodeEvent{cluster.Event{
			About: cluster.NodeObject(ne.node), Node: ne.node, Time: now,
			Warning: warning, Reason: reason, Message: message, Count: count,
		}, total})
	}
	for _, p := range ne.past {
		add(true, p.reason, p.message, p.count, 0)
	}
	seen := map[string]bool{}
	for _, p := range ne.current {
		isSettled := now.Sub(ne.since[p.reason]) >= p.settleTime(settle)
		if added := ne.unreportedCount(p); !seen[p.reason] && added > 0 && isSettled {
			add(true, p.reason, p.message, added, p.count)
		}
		seen[p.reason] = true
	}
	maps.DeleteFunc(ne.reported, func(reason string, _ int) bool { return !seen[reason] })
	if len(ne.current) == 0 && ne.ready && ne.warned {
		add(false, recovered, recoveredMessage, 0, 0)
	}
	return events
}

// unreportedCount returns the number of occurrences of a problem since its last report.
func (ne *nodeEvents) unreportedCount(p problemEvent) int {
	reported, ok := ne.reported[p.reason]
	if !ok || p.count < reported { // the problem is new, or its count has restarted
		return max(1, p.count)
	}
	return p.count - reported
}

// markReported records that an event has been reported.
func (ne *nodeEvents) markReported(e nodeEvent) {
	ne.mu.Lock()
	defer ne.mu.Unlock()
	if len(ne.past) > 0 && ne.past[0].reason == e.Reason && ne.past[0].message == e.Message {
		// The problem may have occurred again while the event was sent.
		if ne.past[0].count -= e.Count; ne.past[0].count <= 0 {
			ne.past = ne.past[1:]
		}
		return
	}
	ne.warned = e.Warning
	if e.Warning {
		ne.reported[e.Reason] = e.total
	}
}
