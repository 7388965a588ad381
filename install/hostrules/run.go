package hostrules

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/watch"
)

const (
	defaultInterval = 10 * time.Second
	legacyInterval  = time.Second
	// kubeletInterval is the time between two looks at the kubelet, which cost 20 µs.
	kubeletInterval = 250 * time.Millisecond
	// searchInterval is the time between two searches for a kubelet that was not found, which cost
	// some milliseconds.
	searchInterval = 2 * time.Second
)

// Run guards the rules until the context ends.
func (g *Guard) Run(ctx context.Context) {
	events := make(chan watch.Event)
	var group sync.WaitGroup
	group.Go(func() { g.listen(ctx, events) })
	defer group.Wait()
	ticker := time.NewTicker(kubeletInterval)
	defer ticker.Stop()
	compared := time.Now()
	for {
		var event *watch.Event
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			event = &e
		case <-ticker.C:
			if time.Since(compared) < g.interval() && g.kubeletIsCurrent() {
				continue
			}
		}
		compared = time.Now()
		g.writing.Lock()
		_ = g.reconcile(event) // reported, and repeated
		g.writing.Unlock()
	}
}

func (g *Guard) interval() time.Duration {
	g.writing.Lock()
	defer g.writing.Unlock()
	switch {
	case g.err != nil, g.options.Interval == 0 && g.backend == compat.BackendLegacy:
		return legacyInterval
	case g.options.Interval == 0:
		return defaultInterval
	}
	return g.options.Interval
}

// kubeletIsCurrent reports whether the kubelet need not be searched for now.
func (g *Guard) kubeletIsCurrent() bool {
	g.writing.Lock()
	defer g.writing.Unlock()
	switch {
	case g.searched.IsZero():
		return true // the first write searches for it
	case g.missing != nil:
		return time.Since(g.searched) < searchInterval
	}
	return g.options.Current(g.kubelet)
}

// listen sends the events of the node's namespace until the context ends.
func (g *Guard) listen(ctx context.Context, to chan<- watch.Event) {
	for ctx.Err() == nil {
		err := g.follow(ctx, to)
		if ctx.Err() != nil {
			return
		}
		g.options.Report(Report{Kind: Unwatched, Err: err})
		timer := time.NewTimer(defaultInterval)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (g *Guard) follow(ctx context.Context, to chan<- watch.Event) error {
	ns, err := g.options.Open()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	events, err := g.options.Listen()
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	if err := events.Add(ns); err != nil {
		return err
	}
	e := watch.Event{Lost: true} // the rules may have changed before
	for {
		if e.Lost || e.NS == ns.ID() {
			select {
			case to <- e:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if e, err = events.Next(ctx); err != nil {
			return err
		}
	}
}
