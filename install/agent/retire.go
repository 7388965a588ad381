package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/agent/retire"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/listen"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// UninstallReserve returns the time that the agent needs between SIGTERM and its end in addition to
// SLUICE_UNINSTALL_TIMEOUT, when it removes the plugin from the node: for the decision, for the end
// of its workers and servers, and in ambient mode for the pods to leave. The kubelet kills it after
// the termination grace period; enrolled pods would then keep their rules without an agent. The
// time does not include waiting for the lock of the state directory, which other processes hold for
// some milliseconds.
func UninstallReserve(ambientMode bool) time.Duration {
	const (
		endOfWorkers   = time.Second
		removalOfRules = 4 * time.Second // of all pods
	)
	reserve := retire.DefaultTimeout + endOfWorkers + observe.ShutdownTime
	if ambientMode {
		reserve += ambient.UninstallTime + removalOfRules
	}
	return reserve
}

// retire removes the plugin and the rules of ambient mode from the node if no agent will replace
// this one, and reports whether it removed the plugin. The agent continues to serve the plugin
// meanwhile. If the plugin cannot be removed, the rules are removed nevertheless, unless another
// agent runs.
func (a *Agent) retire(ctx context.Context) (removed bool, err error) {
	decision := a.decider.Decide(ctx)
	if !decision.Remove {
		a.options.Log.Info("the plugin stays installed", zap.String("reason", decision.Reason))
		return false, nil
	}
	a.options.Log.Info("the agent removes the plugin from the node", zap.String("reason", decision.Reason))
	err = uninstallNode(ctx, a.node, a.options.Settings, a.options.Log.Logger)
	removed = err == nil
	if a.ambient != nil && !anotherAgentRuns(a.options.Settings, err) {
		err = errors.Join(err, a.ambient.uninstall(ctx))
	}
	return removed, err
}

// Uninstall removes the plugin and the rules of ambient mode from this node. The error wraps
// [journal.ErrAgentRunning] if an agent is running.
func Uninstall(ctx context.Context, v settings.Values, noop string, log *zap.Logger) error {
	element, parsed, err := Element(v)
	if err != nil {
		return err
	}
	n, err := node.New(NodeSettings(v, element, noop))
	if err != nil {
		return err
	}
	err = uninstallNode(ctx, n, v, log)
	removed := err == nil
	if !anotherAgentRuns(v, err) {
		err = errors.Join(err, removeAmbientRules(v, parsed, log))
	}
	if removed {
		err = errors.Join(err, removeAccess(v, parsed.Kubeconfig))
	}
	return err
}

// anotherAgentRuns reports whether an agent is registered, or was when the uninstallation of the
// plugin failed with err.
func anotherAgentRuns(v settings.Values, err error) bool {
	return errors.Is(err, journal.ErrAgentRunning) ||
		errors.Is(journal.CheckNoAgent(v.Text("SLUICE_STATE_DIR")), journal.ErrAgentRunning)
}

// uninstallNode removes the plugin from the node, and logs the changed and the remaining files, and
// the result. Paths in messages are paths on the node.
func uninstallNode(ctx context.Context, n *node.Node, v settings.Values, log *zap.Logger) error {
	report, err := n.Uninstall(ctx, v.Duration("SLUICE_UNINSTALL_TIMEOUT"))
	paths := hostPaths(v)
	for _, path := range report.Changed {
		log.Info("uninstallation changed a file", zap.String("file", paths.Replace(path)))
	}
	for _, l := range report.Left {
		log.Warn(paths.Replace(l.String()))
	}
	if errors.Is(err, journal.ErrAgentRunning) {
		return fmt.Errorf("the plugin stays installed: %w", err)
	}
	if err != nil {
		return errors.New(paths.Replace(err.Error()))
	}
	switch {
	case slices.ContainsFunc(report.Left, node.Leftover.IsNamed):
		log.Warn("the plugin is not removed completely, because a configuration names it or may name " +
			"it; correct or remove this file, and uninstall again")
	case len(report.Left) > 0:
		log.Info("the plugin was removed from the node's CNI chain; its executable remains until no " +
			"sandbox needs it and the plugin is uninstalled again")
	default:
		log.Info("the plugin was removed from the node")
	}
	return nil
}

// removeAccess removes the kubeconfig and the socket of the plugin. The plugin must have been
// uninstalled, and the agent's server must have stopped, because it would create its socket again.
func removeAccess(v settings.Values, kubeconfig string) error {
	_, err := file.Remove(kubeconfig)
	err = errors.Join(listen.Remove(agent.SocketIn(v.Text("CNI_AGENT_RUN_DIR"))), err)
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	return nil
}
