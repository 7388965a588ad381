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
	isKnown bool // last is known; it is nil if there is no DaemonSet
	last    *cluster.DaemonSet
}

// Options are the options of a [Decider].
type Options struct {
	Client *cluster.Client
	// DaemonSet is the agent's DaemonSet, NodeName its node.
	DaemonSet cluster.Name
	NodeName  string
	// Patience is the time limit for requests to the API server; 3 s if it is 0.
	Patience time.Duration
	// Broken, unless nil, is called if the DaemonSet cannot be watched.
	Broken func(error)
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
func (j *Decider) Run(ctx context.Context) {
	j.options.Client.WatchDaemonSet(ctx, j.options.DaemonSet, func(d *cluster.DaemonSet) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.isKnown, j.last = true, d
	}, j.options.Broken)
}

// Decide sends requests to the API server within the time limit, and decides.
func (j *Decider) Decide(ctx context.Context) Verdict {
	ctx, cancel := context.WithTimeout(ctx, j.options.Patience)
	defer cancel()
	var last error
	for {
		verdict, err := j.query(ctx)
		if err == nil {
			return verdict
		}
		// The error of a request that the time limit interrupted is less specific than the one
		// before it.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		// A retry would have the same result.
		final := cluster.IsRefused(err)
		if !final {
			timer := time.NewTimer(j.options.Patience / 6)
			select {
			case <-ctx.Done():
				final = true
			case <-timer.C:
			}
			timer.Stop()
		}
		if final {
			return j.decideFromCache(last)
		}
	}
}

// query decides with the current state in the API server.
func (j *Decider) query(ctx context.Context) (Verdict, error) {
	name := j.options.DaemonSet
	d, err := j.options.Client.DaemonSet(ctx, name)
	if cluster.IsNotFound(err) {
		d, err = nil, nil
	}
	if err != nil {
		return Verdict{}, err
	}
	if v := isDeleted(name, d); v.Remove {
		return v, nil
	}
	n, err := j.options.Client.Node(ctx, j.options.NodeName)
	if cluster.IsNotFound(err) {
		return Verdict{
			false, fmt.Sprintf("node %s is no longer part of the cluster", j.options.NodeName),
		}, nil
	}
	if err != nil {
		return Verdict{}, err
	}
	return decide(name, d, n), nil
}

// decideFromCache decides with the last known state, because the API server does not reply.
func (j *Decider) decideFromCache(lastErr error) Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.isKnown {
		if v := isDeleted(j.options.DaemonSet, j.last); v.Remove {
			v.Reason += " (last known state; the API server does not reply)"
			return v
		}
	}
	return Verdict{
		false,
		fmt.Sprintf("the API server does not confirm that no agent will run on this node: %v", lastErr),
	}
}
