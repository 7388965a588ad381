package retire

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A Decider watches the agent's DaemonSet. It is safe for concurrent use.
type Decider struct {
	options Options

	mu      sync.Mutex
	isKnown bool               // the DaemonSet has been requested successfully
	last    *cluster.DaemonSet // nil if it does not exist
}

// Options are the options of a [Decider].
type Options struct {
	Client *cluster.Client
	// DaemonSet is the agent's DaemonSet.
	DaemonSet cluster.Name
	// NodeName is the agent's node.
	NodeName string
	// Patience is the time limit for requests to the API server; 3 s if it is 0.
	Patience time.Duration
	// WatchFailed, unless nil, is called if the DaemonSet cannot be watched.
	WatchFailed func(error)
}

const defaultPatience = 3 * time.Second

// New returns a decider without information.
func New(o Options) *Decider {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	return &Decider{options: o}
}

// Run watches the DaemonSet until ctx is done.
func (dec *Decider) Run(ctx context.Context) {
	dec.options.Client.WatchDaemonSet(ctx, dec.options.DaemonSet, func(d *cluster.DaemonSet) {
		dec.mu.Lock()
		defer dec.mu.Unlock()
		dec.isKnown, dec.last = true, d
	}, dec.options.WatchFailed)
}

// Decide decides with the current objects in the API server. It repeats failed requests within the
// time limit, and then decides with the DaemonSet that was seen last.
func (dec *Decider) Decide(ctx context.Context) Decision {
	ctx, cancel := context.WithTimeout(ctx, dec.options.Patience)
	defer cancel()
	var last error
	for {
		decision, err := dec.query(ctx)
		if err == nil {
			return decision
		}
		// If the time limit interrupted the request, the error before it is more specific.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if cluster.IsRefused(err) { // a retry would have the same result
			return dec.decideFromCache(last)
		}
		select {
		case <-ctx.Done():
			return dec.decideFromCache(last)
		case <-time.After(dec.options.Patience / 6):
		}
	}
}

// query decides with the current objects in the API server.
func (dec *Decider) query(ctx context.Context) (Decision, error) {
	name := dec.options.DaemonSet
	d, err := dec.options.Client.DaemonSet(ctx, name)
	if cluster.IsNotFound(err) {
		d, err = nil, nil
	}
	if err != nil {
		return Decision{}, err
	}
	if v := decideByDeletion(name, d); v.Remove {
		return v, nil
	}
	n, err := dec.options.Client.Node(ctx, dec.options.NodeName)
	if cluster.IsNotFound(err) {
		return Decision{Reason: fmt.Sprintf("node %s is no longer part of the cluster",
			dec.options.NodeName)}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	return decide(name, d, n), nil
}

// decideFromCache decides with the DaemonSet that was seen last. lastErr is the reason why the API
// server could not be asked.
func (dec *Decider) decideFromCache(lastErr error) Decision {
	dec.mu.Lock()
	defer dec.mu.Unlock()
	if dec.isKnown {
		if v := decideByDeletion(dec.options.DaemonSet, dec.last); v.Remove {
			v.Reason += " (last known state; the API server does not reply)"
			return v
		}
	}
	return Decision{Reason: fmt.Sprintf(
		"the API server does not confirm that no agent will run on this node: %v", lastErr)}
}
