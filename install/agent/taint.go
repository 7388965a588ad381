package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

const (
	// taintPoll is the interval for checking whether an ADD would succeed.
	taintPoll = 100 * time.Millisecond
	// maxTaintRetry is the maximum delay after an error. Delays are random, because all agents
	// retry after an outage of the API server.
	maxTaintRetry = 30 * time.Second
	// taintTimeout is the time limit of the requests that remove the taint.
	taintTimeout = 10 * time.Second
)

// removeTaint removes the start-up taint with the key once an ADD would succeed on the node. It
// then returns, because a taint that is added later has another purpose.
func (a *Agent) removeTaint(ctx context.Context, key string) {
	log := a.options.Log.With(zap.String("taint", key))
	delay, maxDelay := taintPoll, taintPoll
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
		if !a.Readiness().Ready {
			continue
		}
		removed, err := untaint(ctx, a.cluster, a.options.Settings.Text("NODE_NAME"), key)
		if err == nil {
			if removed {
				log.Info("the start-up taint was removed from the node")
			}
			return
		}
		log.Warn("the start-up taint cannot be removed yet", zap.Error(err))
		maxDelay = min(5*maxDelay, maxTaintRetry)
		delay = maxDelay/2 + rand.N(maxDelay/2)
	}
}

// untaint removes the taints with a key from a node, and reports whether there were any.
func untaint(ctx context.Context, c *cluster.Client, nodeName, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, taintTimeout)
	defer cancel()
	n, err := c.Node(ctx, nodeName)
	if err != nil {
		return false, fmt.Errorf("read the taints of node %s: %w", nodeName, err)
	}
	removed, err := c.Untaint(ctx, n, key)
	if err != nil {
		return false, fmt.Errorf("remove taint %s from node %s: %w", key, nodeName, err)
	}
	return removed, nil
}
