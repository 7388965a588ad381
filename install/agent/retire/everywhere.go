package retire

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// everywherePoll is the interval for listing the remaining agents. They are not watched, because
// the service account of the chart's uninstall Job may list pods but not watch them.
const everywherePoll = time.Second

// maxListed is the maximum number of agents that a message names.
const maxListed = 10

// Everywhere deletes the agent's DaemonSet, and returns when all agents have ended. A missing
// DaemonSet is not an error.
//
// Each agent uninstalls the plugin from its node when it ends, because the API server returns the
// DaemonSet with a deletion timestamp until all agents have ended. Everywhere calls waiting, unless
// it is nil, with the number and some names of the remaining agents, or with the error of a
// request. It repeats failed requests until ctx is done, except if the API server rejects the
// credentials or denies permission.
func Everywhere(
	ctx context.Context, c *cluster.Client, d cluster.Name, waiting func(string),
) error {
	if waiting == nil {
		waiting = func(string) {}
	}
	ticker := time.NewTicker(everywherePoll)
	defer ticker.Stop()
	deleted, reported := false, ""
	for {
		remaining, err := deleteAndList(ctx, c, d, &deleted)
		switch {
		case err == nil && len(remaining) == 0:
			return nil
		case cluster.IsRefused(err):
			return fmt.Errorf("uninstall everywhere: %w", err)
		}
		state := fmt.Sprintf("waiting for agents to end (%d): %s", len(remaining),
			text.List(remaining, maxListed))
		if err != nil {
			state = err.Error()
		}
		if state != reported {
			waiting(state)
			reported = state
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("uninstall everywhere: %w; last state: %s", context.Cause(ctx), state)
		case <-ticker.C:
		}
	}
}

// deleteAndList returns the names of the remaining agents' pods. Unless *deleted is set, it first
// deletes the DaemonSet and sets *deleted.
func deleteAndList(
	ctx context.Context, c *cluster.Client, d cluster.Name, deleted *bool,
) ([]string, error) {
	if !*deleted {
		if err := c.DeleteDaemonSet(ctx, d); err != nil && !cluster.IsNotFound(err) {
			return nil, fmt.Errorf("delete DaemonSet %s: %w", d, err)
		}
		*deleted = true
	}
	remaining, err := c.Pods(ctx, d.Namespace, "k8s-app="+d.Name)
	if err != nil {
		return nil, fmt.Errorf("list the pods of DaemonSet %s: %w", d, err)
	}
	return remaining, nil
}
