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
	// taintPoll is the interval for checking whether an ADD would succeed; taintRetry is the
	// maximum delay after an error, which is shortened by up to half, at random.
	taintPoll  = 100 * time.Millisecond
	taintRetry = 30 * time.Second
	taintTime  = 10 * time.Second
)

// removeTaint returns a runnable that removes the start-up taint with the key once an ADD would
// succeed on the node. It does so once, because a later taint has another reason.
func removeTaint(key string) Runnable {
	return func(ctx context.Context, w Dependencies) {
		pause, next := taintPoll, taintPoll
		for {
			timer := time.NewTimer(pause)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			if !w.Ready().Ready {
				continue
			}
			removed, err := untaint(ctx, w.Cluster, w.NodeName, key)
			if err == nil {
				if removed {
					w.Log.Info("the start-up taint is removed from the node",
						zap.String("taint", key))
				}
				return
			}
			w.Log.Warn("the start-up taint is still on the node", zap.String("taint", key),
				zap.Error(err))
			next = min(5*next, taintRetry)
			pause = next/2 + rand.N(next/2)
		}
	}
}

// untaint removes the taints with a key from a node, and reports whether there were any.
func untaint(ctx context.Context, c *cluster.Client, nodeName, key string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, taintTime)
	defer cancel()
	n, err := c.Node(ctx, nodeName)
	if err != nil {
		return false, fmt.Errorf("taints of node %s: %w", nodeName, err)
	}
	removed, err := c.Untaint(ctx, n, key)
	if err != nil {
		return false, fmt.Errorf("taints of node %s: %w", nodeName, err)
	}
	return removed, nil
}
