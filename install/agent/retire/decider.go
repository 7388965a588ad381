package retire

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A Decider knows the agent's DaemonSet. It is safe for concurrent use.
type Decider struct {
	options Options

	mu   sync.Mutex
	seen bool // what follows is known
	last *cluster.DaemonSet
}

// Options say what is decided about.
type Options struct {
	Client *cluster.Client
	// DaemonSet is the agent's, NodeName the node that it runs on.
	DaemonSet cluster.Name
	NodeName  string
	// Patience is how long the API server is asked when it does not answer; 3 s if it is 0.
	Patience time.Duration
	// Broken is told when the DaemonSet cannot be watched, if it is not nil.
	Broken func(error)
}

const defaultPatience = 3 * time.Second

// New returns a decider that has seen nothing yet.
func New(o Options) *Decider {
	if o.Patience == 0 {
		o.Patience = defaultPatience
	}
	return &Decider{options: o}
}

// Run watches the DaemonSet until ctx ends.
func (j *Decider) Run(ctx context.Context) {
	j.options.Client.WatchDaemonSet(ctx, j.options.DaemonSet, func(d *cluster.DaemonSet) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.seen, j.last = true, d
	}, j.options.Broken)
}

// Decide asks the API server, for as long as its patience lasts, and decides.
func (j *Decider) Decide(ctx context.Context) Verdict {
	ctx, cancel := context.WithTimeout(ctx, j.options.Patience)
	defer cancel()
	var last error
	for {
		verdict, err := j.ask(ctx)
		if err == nil {
			return verdict
		}
		// A question that the end of the patience cut short has less to say than the one before it.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		// An answer, and asking again would not change it.
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
			return j.recall(last)
		}
	}
}

// ask decides by what the API server says now.
func (j *Decider) ask(ctx context.Context) (Verdict, error) {
	name := j.options.DaemonSet
	d, err := j.options.Client.DaemonSet(ctx, name)
	if cluster.IsNotFound(err) {
		d, err = nil, nil
	}
	if err != nil {
		return Verdict{}, err
	}
	if v := goes(name, d); v.Leave {
		return v, nil
	}
	n, err := j.options.Client.Node(ctx, j.options.NodeName)
	if cluster.IsNotFound(err) {
		return Verdict{false, fmt.Sprintf("node %s is no part of the cluster any more", j.options.NodeName)}, nil
	}
	if err != nil {
		return Verdict{}, err
	}
	return decide(name, d, n), nil
}

// recall decides by what was seen before the API server fell silent.
func (j *Decider) recall(silence error) Verdict {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen {
		if v := goes(j.options.DaemonSet, j.last); v.Leave {
			v.Reason += ", as was seen before the API server did not answer any more"
			return v
		}
	}
	return Verdict{false, fmt.Sprintf("the API server does not say that no agent comes back: %v", silence)}
}
