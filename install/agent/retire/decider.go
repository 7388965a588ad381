package retire

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A Decider decides whether the agent removes the plugin from the node. It is safe for concurrent
// use.
type Decider struct {
	options Options

	mu sync.Mutex
	// hasWatched is set when Run has received the first state of the DaemonSet. watched is the last
	// state; it is nil if the DaemonSet does not exist.
	hasWatched bool
	watched    *cluster.DaemonSet
}

// Options are the options of a [Decider].
type Options struct {
	Client *cluster.Client
	// DaemonSet is the agent's DaemonSet.
	DaemonSet cluster.Name
	// NodeName is the agent's node.
	NodeName string
	// Timeout limits a call of Decide with all its requests; DefaultTimeout if it is 0.
	Timeout time.Duration
	// WatchFailed, unless nil, is called with each error of the watch.
	WatchFailed func(error)
}

// DefaultTimeout is the default of Options.Timeout.
const DefaultTimeout = 3 * time.Second

// New returns a decider. It receives states of the DaemonSet only while its method Run runs.
func New(o Options) *Decider {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	return &Decider{options: o}
}

// Run watches the DaemonSet until ctx is done.
func (dec *Decider) Run(ctx context.Context) {
	dec.options.Client.WatchDaemonSet(ctx, dec.options.DaemonSet, func(d *cluster.DaemonSet) {
		dec.mu.Lock()
		defer dec.mu.Unlock()
		dec.hasWatched, dec.watched = true, d
	}, dec.options.WatchFailed)
}

// Decide decides by the current objects in the API server. It repeats failed requests, except
// refused ones, until the timeout. If it cannot read the objects, it decides to remove the plugin
// only if the DaemonSet was deleted, or was being deleted, when Run received its last state.
func (dec *Decider) Decide(ctx context.Context) Decision {
	ctx, cancel := context.WithTimeout(ctx, dec.options.Timeout)
	defer cancel()
	var lastErr error
	for {
		decision, err := dec.query(ctx)
		if err == nil {
			return decision
		}
		// If the time limit interrupted the request, the previous error is more specific.
		if lastErr == nil || ctx.Err() == nil {
			lastErr = err
		}
		if cluster.IsRefused(err) { // a retry would have the same result
			return dec.decideFromWatch(lastErr)
		}
		select {
		case <-ctx.Done():
			return dec.decideFromWatch(lastErr)
		case <-time.After(dec.options.Timeout / 6):
		}
	}
}

// query decides by the current objects in the API server.
func (dec *Decider) query(ctx context.Context) (Decision, error) {
	name := dec.options.DaemonSet
	d, err := dec.options.Client.DaemonSet(ctx, name)
	if cluster.IsNotFound(err) {
		d, err = nil, nil
	}
	if err != nil {
		return Decision{}, err
	}
	if decision := decideByDeletion(name, d); decision.Remove {
		return decision, nil
	}
	n, err := dec.options.Client.Node(ctx, dec.options.NodeName)
	if cluster.IsNotFound(err) {
		return Decision{Reason: fmt.Sprintf("node %s is no longer part of the cluster",
			dec.options.NodeName)}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	return decideBySelection(name, d, n), nil
}

// decideFromWatch decides by the last state of the DaemonSet that Run has received. lastErr is
// the reason why the API server did not return the objects.
func (dec *Decider) decideFromWatch(lastErr error) Decision {
	dec.mu.Lock()
	defer dec.mu.Unlock()
	if dec.hasWatched {
		decision := decideByDeletion(dec.options.DaemonSet, dec.watched)
		if decision.Remove {
			decision.Reason += fmt.Sprintf(" (last known state; a request failed: %v)", lastErr)
			return decision
		}
	}
	return Decision{Reason: fmt.Sprintf(
		"an agent may follow on this node, because the API server does not say otherwise: %v", lastErr)}
}
