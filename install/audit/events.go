package audit

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// Reasons of events on pods, in addition to those of istio-cni.
const (
	redirectRepaired = "RedirectRepaired"
	drifted          = "RedirectDrifted"
	repairFailed     = "RedirectRepairFailed"
	notRedirected    = "NotRedirected"
	bypassed         = "RedirectBypassed"
	effectUnknown    = "RedirectUnknown"
	// auditFailed is not a reason of events. It limits the rate of a log message.
	auditFailed = "AuditFailed"
)

// eventInterval is the minimum time between two events of a reason on a pod, so that a pod that
// changes its rules repeatedly does not flood the API server.
const eventInterval = 5 * time.Minute

// lastEvent is the time of the last event of a reason, with the number of occurrences since then.
type lastEvent struct {
	at    time.Time
	since int
}

// countOccurrence counts an occurrence of a reason. It returns the number of occurrences since the
// last event, and reports whether the next event may be sent.
func (v *reconciliation) countOccurrence(reason string) (count int, due bool) {
	last, known := v.lastEvents[reason]
	last.since++
	if known && v.now.Sub(last.at) < eventInterval {
		v.lastEvents[reason] = last
		return last.since, false
	}
	v.lastEvents[reason] = lastEvent{at: v.now}
	return last.since, true
}

// recordEvent queues an event on the pod and logs it, unless the last event with the same reason
// was less than eventInterval ago.
func (v *reconciliation) recordEvent(reason, message string) {
	count, due := v.countOccurrence(reason)
	if !due {
		return
	}
	message = text.Printable(message) // table names are untrusted
	if reason != redirectRepaired {
		v.Log.Warn(message, zap.Stringer("pod", v.item.Ref), zap.String("reason", reason),
			v.modeField())
	}
	v.eventQueue.add(cluster.Event{
		About: cluster.Object{
			Kind: "Pod", APIVersion: "v1", Namespace: v.item.Namespace, Name: v.item.Name,
			UID:             v.item.UID,
			ResourceVersion: v.item.ResourceVersion,
		},
		Warning: true, Reason: reason, Message: message, Node: v.NodeName, Time: v.now,
		Count: count,
	})
}

const (
	// maxQueueLen is the maximum number of waiting events while the API server is unavailable. The
	// oldest events are dropped.
	maxQueueLen = 500
	// deliverTimeout is the time limit for the delivery of an event.
	deliverTimeout = 10 * time.Second
	// unavailableBackoff is the delay of the next delivery if the API server did not reply, and
	// rejectedBackoff the delay if it rejected the event.
	unavailableBackoff = 30 * time.Second
	rejectedBackoff    = 5 * time.Second
	// maxEventAge is the time for which the delivery of an event is attempted. It is equal to the
	// lifetime of events in the API server.
	maxEventAge = time.Hour
)

// An eventQueue delivers events in sequence, so that callers do not wait for the API server. Failed
// events are moved to the end.
type eventQueue struct {
	send  func(context.Context, cluster.Event) error
	log   *zap.Logger
	queue workqueue.TypedInterface[cluster.Event]
}

func newEventQueue(send func(context.Context, cluster.Event) error, log *zap.Logger) *eventQueue {
	return &eventQueue{send: send, log: log, queue: workqueue.NewTyped[cluster.Event]()}
}

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

// deliver delivers an event, or queues it again if this fails. It returns the delay before the next
// delivery.
func (q *eventQueue) deliver(ctx context.Context, e cluster.Event) time.Duration {
	deadlineCtx, cancel := context.WithTimeout(ctx, deliverTimeout)
	defer cancel()
	err := q.send(deadlineCtx, e)
	switch {
	case err == nil:
		return 0
	case cluster.IsPermanent(err), time.Since(e.Time) > maxEventAge:
		q.log.Warn("the API server rejects an event",
			zap.String("pod", e.About.Namespace+"/"+e.About.Name), zap.Error(err))
		return 0
	}
	q.add(e)
	if cluster.HasReply(err) {
		return rejectedBackoff
	}
	return unavailableBackoff
}
