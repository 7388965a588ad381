package retire

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// everywherePoll is the interval for counting the remaining agents; the job may list pods but not
// watch them.
const everywherePoll = time.Second

// Everywhere deletes the agent's DaemonSet, and returns when all agents have ended. While an agent
// runs, the API server returns the DaemonSet with a deletion timestamp, from which the agent knows
// that it must uninstall. Everywhere passes errors and the names of the remaining agents to
// waiting, unless that is nil, and repeats failed requests until ctx is done. A missing DaemonSet
// is not an error. A rejection by the API server is final.
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
		remaining, err := deleteOnce(ctx, c, d, &deleted)
		switch {
		case err == nil && len(remaining) == 0:
			return nil
		case cluster.IsRefused(err):
			return fmt.Errorf("uninstall everywhere: %w", err)
		}
		text := fmt.Sprintf("waiting for %d agents: %s", len(remaining), strings.Join(remaining, ", "))
		if err != nil {
			text = err.Error()
		}
		if text != reported {
			waiting(text)
			reported = text
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("uninstall everywhere: given up while %s: %w", text,
				context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// deleteOnce deletes the DaemonSet unless it is already being deleted, and returns the remaining
// agents.
func deleteOnce(
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
		return nil, fmt.Errorf("pods of DaemonSet %s: %w", d, err)
	}
	return remaining, nil
}
