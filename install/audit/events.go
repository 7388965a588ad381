package audit

import (
	"context"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// Reasons of events on pods, besides those that istio-cni has.
const (
	redirectRepaired = "RedirectRepaired"
	drifted          = "RedirectDrifted"
	repairFailed     = "RedirectRepairFailed"
	notRedirected    = "NotRedirected"
	bypassed         = "RedirectBypassed"
	effectUnknown    = "RedirectUnknown"
	// auditFailed is for the log alone.
	auditFailed = "AuditFailed"
)

// tellPause is the least time between two events of a reason on a pod: a pod whose processes change
// its rules on and on shall not flood the API server.
const tellPause = 5 * time.Minute

// told is when something was told for a reason last, and how often it has happened since.
type told struct {
	at    time.Time
	since int
}

// isDue reports whether an event of the reason is due again, and how often it has happened since
// the last one.
func (v *reconciliation) isDue(reason string) (times int, due bool) {
	last, known := v.told[reason]
	last.since++
	if known && v.now.Sub(last.at) < tellPause {
		v.told[reason] = last
		return last.since, false
	}
	v.told[reason] = told{at: v.now}
	return last.since, true
}

// recordEvent queues an event on the pod, and logs it, unless one of the reason was recorded a
// short time ago.
func (v *reconciliation) recordEvent(reason, message string) {
	times, due := v.isDue(reason)
	if !due {
		return
	}
	message = text.Printable(message) // names of tables are chosen by whoever makes them
	if reason != redirectRepaired {
		v.Log.Warn(message, zap.Stringer("pod", v.item.Ref), zap.String("reason", reason))
	}
	v.eventQueue.add(cluster.Event{
		About: cluster.Object{
			Kind: "Pod", APIVersion: "v1", Namespace: v.item.Namespace, Name: v.item.Name, UID: v.item.UID,
			ResourceVersion: v.item.ResourceVersion,
		},
		Warning: true, Reason: reason, Message: message, Node: v.NodeName, Time: v.now, Count: times,
	})
}

const (
	// longestQueue is how many events wait while the API server is away; beyond that the oldest are
	// dropped.
	longestQueue = 500
	// tellTime bounds one event. After tellRetry the next one is tried if nobody answers, and after
	// tellNext if it is only this one that fails.
	tellTime  = 10 * time.Second
	tellRetry = 30 * time.Second
	tellNext  = 5 * time.Second
	// tellLife is how long an event is tried, which is as long as the API server keeps one.
	tellLife = time.Hour
)

// An eventQueue sends events one after the other, so that no caller waits for the API server. Those
// that fail are sent again after all others.
type eventQueue struct {
	send  func(context.Context, cluster.Event) error
	log   *zap.Logger
	queue workqueue.TypedInterface[cluster.Event]
}

func newEventQueue(send func(context.Context, cluster.Event) error, log *zap.Logger) *eventQueue {
	return &eventQueue{send: send, log: log, queue: workqueue.NewTyped[cluster.Event]()}
}

func (t *eventQueue) add(e cluster.Event) {
	if t.queue.Len() >= longestQueue {
		oldest, _ := t.queue.Get()
		t.queue.Done(oldest)
	}
	t.queue.Add(e)
}

// run tells until the context ends.
func (t *eventQueue) run(ctx context.Context) {
	defer context.AfterFunc(ctx, t.queue.ShutDown)()
	for {
		e, shutdown := t.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		pause := t.deliver(ctx, e)
		t.queue.Done(e)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// deliver tells one event, or keeps it for later. It returns how long to wait before the next one.
func (t *eventQueue) deliver(ctx context.Context, e cluster.Event) time.Duration {
	bounded, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	err := t.send(bounded, e)
	switch {
	case err == nil:
		return 0
	case cluster.IsAnswer(err), time.Since(e.Time) > tellLife:
		t.log.Warn("an event is not taken", zap.String("pod", e.About.Namespace+"/"+e.About.Name), zap.Error(err))
		return 0
	}
	t.add(e)
	if cluster.IsStatus(err) {
		return tellNext
	}
	return tellRetry
}
