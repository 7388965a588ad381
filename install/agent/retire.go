package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/agent"
)

// retire takes the plugin off the node if no agent comes back.
func (a *Agent) retire(ctx context.Context) error {
	verdict := a.judge.Decide(ctx)
	if !verdict.Leave {
		a.options.Log.Info("the plugin stays on the node", zap.String("why", verdict.Reason))
		return nil
	}
	a.options.Log.Info("the plugin is taken off the node", zap.String("why", verdict.Reason))
	return leave(ctx, a.node, a.options.Settings, a.config.Kubeconfig, a.options.Log)
}

// Uninstall takes the plugin off this node when no agent runs on it.
func Uninstall(ctx context.Context, v settings.Values, noop string, log *zap.Logger) error {
	element, parsed, err := Element(v)
	if err != nil {
		return err
	}
	n, err := node.New(NodeSettings(v, element, noop), node.Options{})
	if err != nil {
		return err
	}
	return leave(ctx, n, v, parsed.Kubeconfig, log)
}

// leave uninstalls, and takes away the ways to pods when nothing needs them any more.
func leave(ctx context.Context, n *node.Node, v settings.Values, kubeconfig string, log *zap.Logger) error {
	report, err := n.Uninstall(ctx, v.Duration("SLUICE_UNINSTALL_TIMEOUT"))
	shown := onNode(v)
	for _, path := range report.Changed {
		log.Info("restored or removed", zap.String("file", shown.Replace(path)))
	}
	for _, l := range report.Left {
		log.Warn(shown.Replace(l.String()))
	}
	if errors.Is(err, journal.ErrPresent) {
		return fmt.Errorf("the plugin stays: %w", err)
	}
	if err != nil {
		return errors.New(shown.Replace(err.Error()))
	}
	err = errors.Join(serve.Remove(agent.SocketIn(v.Text("CNI_AGENT_RUN_DIR"))), removeFile(kubeconfig))
	if err != nil {
		return fmt.Errorf("uninstall: %w", err)
	}
	log.Info("the plugin is off the node")
	return nil
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
