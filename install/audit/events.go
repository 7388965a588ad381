package audit

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/rules"
)

// Reasons of events on pods, in addition to those of istio-cni.
const (
	reasonRepaired      = "RedirectRepaired"
	reasonDrifted       = "RedirectDrifted"
	reasonRepairFailed  = "RedirectRepairFailed"
	reasonNotRedirected = "NotRedirected"
	reasonBypassed      = "RedirectBypassed"
	reasonUnknown       = "RedirectUnknown"
	// auditFailed is not a reason of events. It limits the rate of a log message.
	auditFailed = "AuditFailed"
)

// eventInterval is the minimum time between two events with the same reason on a pod, so that a pod
// whose rules change repeatedly does not flood the API server.
const eventInterval = 5 * time.Minute

// lastEvent is the last event of a reason.
type lastEvent struct {
	at          time.Time
	occurrences int // number of occurrences of the reason since this event
}

// countOccurrence counts an occurrence of a reason. It returns the number of occurrences since the
// last event, including this one, and whether an event may be sent now.
func (r *auditRun) countOccurrence(reason string) (count int, due bool) {
	last, known := r.lastEvents[reason]
	last.occurrences++
	if known && r.now.Sub(last.at) < eventInterval {
		r.lastEvents[reason] = last
		return last.occurrences, false
	}
	r.lastEvents[reason] = lastEvent{at: r.now}
	return last.occurrences, true
}

// recordEvent queues an event on the pod, unless the last event with the same reason was less than
// eventInterval ago. It logs the event, except for reasonRepaired, which the callers log.
func (r *auditRun) recordEvent(reason, message string) {
	count, due := r.countOccurrence(reason)
	if !due {
		return
	}
	if r.orphaned {
		message += " (the API server does not have the pod any more, but its sandbox exists)"
	}
	message = rules.Printable(message) // table names are untrusted
	if reason != reasonRepaired {
		r.Log.Warn(message, zap.Stringer("pod", r.item.Ref), zap.String("reason", reason),
			r.modeField())
	}
	r.eventQueue.add(cluster.Event{
		About: cluster.Object{
			Kind: "Pod", APIVersion: "v1", Namespace: r.item.Namespace, Name: r.item.Name,
			UID:             r.item.UID,
			ResourceVersion: r.item.ResourceVersion,
		},
		Warning: true, Reason: reason, Message: message, Node: r.NodeName, Time: r.now,
		Count: count,
	})
}

const (
	// maxQueueLen is the maximum number of waiting events. If there are more, because the API
	// server is unavailable, the oldest ones are dropped.
	maxQueueLen = 500
	// deliverTimeout is the time limit for the delivery of an event.
	deliverTimeout = 10 * time.Second
	// unavailableBackoff is the delay of the next delivery if the API server did not reply, and
	// rejectedBackoff the delay if it rejected the event.
	unavailableBackoff = 30 * time.Second
	rejectedBackoff    = 5 * time.Second
	// maxEventAge is the time for which the delivery of an event is attempted. It is equal to the
	// default lifetime of events in the API server.
	maxEventAge = time.Hour
)

// An eventQueue delivers events one after the other in one goroutine, so that callers of add do not
// wait for the API server. An event whose delivery fails is moved to the end.
type eventQueue struct {
	send  func(context.Context, cluster.Event) error
	log   *zap.Logger
	queue workqueue.TypedInterface[cluster.Event]
}

func newEventQueue(send func(context.Context, cluster.Event) error, log *zap.Logger) *eventQueue {
	return &eventQueue{send: send, log: log, queue: workqueue.NewTyped[cluster.Event]()}
}

// add queues an event. If the queue is full, it drops the oldest event.
func (q *eventQueue) add(e cluster.Event) {
	if q.queue.Len() >= maxQueueLen {
		oldest, _ := q.queue.Get()
		q.queue.Done(oldest)
	}
	q.queue.Add(e)
}

// run delivers events until ctx is done.
func (q *eventQueue) run(ctx context.Context) {
	defer context.AfterFunc(ctx, q.queue.ShutDown)()
	for {
		e, shutdown := q.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		delay := q.deliver(ctx, e)
		q.queue.Done(e)
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

// deliver delivers an event, or queues it again if this fails. It drops an undelivered event that
// the API server rejects permanently or that is older than maxEventAge. It returns the delay before
// the next delivery.
func (q *eventQueue) deliver(ctx context.Context, e cluster.Event) time.Duration {
	deadlineCtx, cancel := context.WithTimeout(ctx, deliverTimeout)
	defer cancel()
	err := q.send(deadlineCtx, e)
	switch {
	case err == nil:
		return 0
	case cluster.IsPermanent(err), time.Since(e.Time) > maxEventAge:
		q.log.Warn("an event cannot be delivered, and is dropped",
			zap.String("pod", e.About.Namespace+"/"+e.About.Name), zap.Error(err))
		return 0
	}
	q.add(e)
	if cluster.HasReply(err) {
		return rejectedBackoff
	}
	return unavailableBackoff
}
