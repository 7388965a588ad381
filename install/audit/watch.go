package audit

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/nft/watch"
)

const (
	// maxWatchBackoff is the maximum delay between attempts to subscribe to events.
	maxWatchBackoff = 5 * time.Minute
	// auditAllPeriodPerPod is multiplied by the number of pods to get the minimum time between two
	// audits of all pods after lost events. An audit takes 2 ms including foreign rules, so lost
	// events cost at most 2 % of a core.
	auditAllPeriodPerPod = 100 * time.Millisecond
)

// watchBackoff contains delays from one second to maxWatchBackoff.
var watchBackoff = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 30, Cap: maxWatchBackoff}

// watchEvents handles changes of rules until the context ends, and subscribes again if the
// subscription fails.
func (a *Auditor) watchEvents(ctx context.Context) {
	backoff := watchBackoff
	for ctx.Err() == nil {
		begin := time.Now()
		err := a.handleEvents(ctx)
		if ctx.Err() != nil {
			return
		}
		a.Metrics.Count(metrics.EventsLost(metrics.SourceNFTables), 1)
		a.Log.Warn("cannot watch rule changes; pods are audited only at the audit interval",
			zap.Error(err))
		if time.Since(begin) > maxWatchBackoff {
			backoff = watchBackoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// handleEvents subscribes to events, and handles them until the context ends or the subscription
// fails.
func (a *Auditor) handleEvents(ctx context.Context) error {
	events, err := a.Listen()
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.events = events
	a.mu.Unlock()
	a.scheduleAll() // pods that were audited before have no subscription
	for {
		var e watch.Event
		if e, err = events.Next(ctx); err != nil {
			break
		}
		if e.Lost {
			a.Metrics.Count(metrics.EventsLost(metrics.SourceNFTables), 1)
			a.scheduleAll()
		} else {
			a.onEvent(e)
		}
	}
	a.mu.Lock()
	a.events = nil
	a.mu.Unlock()
	return errors.Join(err, events.Close())
}

// onEvent plans an audit of the pod in whose network namespace the event occurred.
func (a *Auditor) onEvent(e watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid, ok := a.byNetNS[e.NS]
	if !ok {
		return
	}
	now := time.Now()
	p := a.pods[uid]
	p.pending.add(e, now)
	a.scheduleAudit(uid, p.eventLimit.next(now))
}

// scheduleAll plans audits of all pods whose network namespace is known. After calls in quick
// succession the audits are delayed; see auditAllPeriodPerPod.
func (a *Auditor) scheduleAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now()
	switch next := a.auditAllAt.Add(time.Duration(len(a.pods)) * auditAllPeriodPerPod); {
	case a.auditAllAt.After(at): // already planned; plan again the pods that were audited since
		at = a.auditAllAt
	case next.After(at):
		at = next
	}
	a.auditAllAt = at
	for uid, p := range a.pods {
		if p.sandbox != nil || a.byNetNS[p.watchedNetNS] == uid {
			p.pending.rules = true
			a.scheduleAudit(uid, at)
		}
	}
}
