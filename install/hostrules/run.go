package hostrules

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/watch"
)

const (
	// defaultInterval is the default of [Options.Interval]. legacyInterval replaces it while the
	// rules are in the legacy backend, which reports no events. After an error, legacyInterval
	// replaces any interval.
	defaultInterval = 10 * time.Second
	legacyInterval  = time.Second
	// kubeletInterval is the time between two checks of the kubelet. A check takes 0.1 ms.
	kubeletInterval = 250 * time.Millisecond
	// searchInterval is the time between two searches for a missing kubelet. A search takes some
	// milliseconds.
	searchInterval = 2 * time.Second
	// The rules are repaired without delay repairBurst times, and then once per repairPeriod. If
	// another program removes them repeatedly, they are missing for one to two seconds each time.
	repairBurst  = 3
	repairPeriod = time.Second
	// conflictReset is the time without a postponed repair after which one is reported again.
	conflictReset = 10 * time.Minute
)

// Run guards the rules until the context ends.
func (g *Guard) Run(ctx context.Context) {
	events := make(chan watch.Event)
	var group sync.WaitGroup
	group.Go(func() { g.listen(ctx, events) })
	defer group.Wait()
	ticker := time.NewTicker(kubeletInterval)
	defer ticker.Stop()
	reconciledAt := time.Now()
	for {
		var event *watch.Event
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			event = &e
		case <-ticker.C:
			if time.Since(reconciledAt) < g.interval() && !g.isKubeletSearchDue() {
				continue
			}
		}
		reconciledAt = time.Now()
		g.rulesMu.Lock()
		_ = g.reconcile(event, false) // reconcile reports its error, and is repeated
		g.rulesMu.Unlock()
	}
}

// interval returns the time between two comparisons without an event.
func (g *Guard) interval() time.Duration {
	g.rulesMu.Lock()
	defer g.rulesMu.Unlock()
	switch {
	case g.err != nil, g.options.Interval == 0 && g.backend == compat.BackendLegacy:
		return legacyInterval
	case g.options.Interval == 0:
		return defaultInterval
	}
	return g.options.Interval
}

// isKubeletSearchDue reports whether the kubelet must be searched for again. It returns false
// before the first reconciliation, which performs the first search.
func (g *Guard) isKubeletSearchDue() bool {
	g.rulesMu.Lock()
	defer g.rulesMu.Unlock()
	if g.searchedAt.IsZero() {
		return false
	}
	due := false
	// An error of Do is ignored here, because the next reconciliation reports it.
	_ = g.options.Do(func() error { due = g.isSearchDue(); return nil })
	return due
}

// listen sends the events of the node's network namespace until the context ends. It reports the
// first failure, and each one after a subscription.
func (g *Guard) listen(ctx context.Context, received chan<- watch.Event) {
	for isReported := false; ctx.Err() == nil; {
		subscribed, err := g.receive(ctx, received)
		if ctx.Err() != nil {
			return
		}
		if subscribed || !isReported {
			g.options.Report(Report{Kind: Unwatched, Err: err})
			isReported = true
		}
		select {
		case <-ctx.Done():
		case <-time.After(defaultInterval):
		}
	}
}

// receive sends the events of the node's network namespace until the context ends or the
// subscription fails. subscribed reports whether there was a subscription.
func (g *Guard) receive(
	ctx context.Context, received chan<- watch.Event,
) (subscribed bool, err error) {
	ns, err := g.options.Open()
	if err != nil {
		return false, err
	}
	defer func() { _ = ns.Close() }()
	events, err := g.options.Subscribe()
	if err != nil {
		return false, err
	}
	defer func() { _ = events.Close() }()
	if err := events.Add(ns); err != nil {
		return false, err
	}
	e := watch.Event{Lost: true} // the rules may have changed before the subscription
	for {
		if e.Lost || e.NS == ns.ID() {
			select {
			case received <- e:
			case <-ctx.Done():
				return true, ctx.Err()
			}
		}
		if e, err = events.Next(ctx); err != nil {
			return true, err
		}
	}
}
