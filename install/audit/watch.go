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
	// longestListen is the maximum delay between attempts to subscribe to events.
	longestListen = 5 * time.Minute
	// lostShare is the time for each pod between two visits of all pods because of lost events:
	// with 2 ms for a visit including foreign rules, lost events cost at most 2 % of a core.
	lostShare = 100 * time.Millisecond
)

// listenPauses are delays from one second to longestListen.
var listenPauses = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 30, Cap: longestListen}

// listen subscribes to changes of rules until the context ends.
func (a *Auditor) listen(ctx context.Context) {
	pauses := listenPauses
	for ctx.Err() == nil {
		begin := time.Now()
		err := a.watchRules(ctx)
		if ctx.Err() != nil {
			return
		}
		a.Metrics.Count(metrics.EventsLost(metrics.SourceNFTables), 1)
		a.Log.Warn("changes of rules are not heard; pods are visited by the timer", zap.Error(err))
		if time.Since(begin) > longestListen {
			pauses = listenPauses
		}
		timer := time.NewTimer(pauses.Step())
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

// watchRules handles events until the context ends, or the subscription fails.
func (a *Auditor) watchRules(ctx context.Context) error {
	events, err := a.Listen()
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.events = events
	a.mu.Unlock()
	a.all() // who was visited before is rejected yet
	for {
		var e watch.Event
		if e, err = events.Next(ctx); err != nil {
			break
		}
		if e.Lost {
			a.Metrics.Count(metrics.EventsLost(metrics.SourceNFTables), 1)
			a.all()
		} else {
			a.onEvent(e)
		}
	}
	a.mu.Lock()
	a.events = nil
	a.mu.Unlock()
	return errors.Join(err, events.Close())
}

// onEvent plans a visit of the pod with the namespace of the event.
func (a *Auditor) onEvent(e watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	uid, ok := a.homes[e.NS]
	if !ok {
		return
	}
	now := time.Now()
	p := a.pods[uid]
	p.pending.note(e, now)
	a.plan(uid, p.eventLimit.next(now))
}

// all plans visits of all pods with a sandbox, with a minimum time since the last ones.
func (a *Auditor) all() {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := time.Now()
	switch next := a.round.Add(time.Duration(len(a.pods)) * lostShare); {
	case a.round.After(at):
		at = a.round // is planned already, but not for those who were visited since
	case next.After(at):
		at = next
	}
	a.round = at
	for uid, p := range a.pods {
		if p.sandbox != nil {
			p.pending.rules = true // perhaps
			a.plan(uid, at)
		}
	}
}
