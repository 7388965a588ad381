package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
)

// insertPollInterval is the interval for checking, at the start, whether the plugin can be
// inserted. It is short, because this is usually possible within a second.
const insertPollInterval = 20 * time.Millisecond

// Run keeps the node in its desired state until ctx is done, and then removes the plugin from the
// node if no agent will replace this one. It returns an error if a port cannot be opened or served,
// if the uninstallation fails, or if the agent must be restarted, either because only a restart
// replaces its credentials (package credential), or because the runtime uses directories that are
// not mounted in the agent.
func (a *Agent) Run(ctx context.Context) error {
	defer a.cluster.Close()
	defer a.podFetcher.Close()
	// The ports and the server for the plugin are closed last.
	serverCtx, stopServing := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopServing(nil)
	var servers sync.WaitGroup
	failed := make(chan error, 3) // two ports and the credentials
	if err := a.openPorts(serverCtx, &servers, failed); err != nil {
		stopServing(nil)
		servers.Wait()
		return err
	}
	if a.podCache != nil {
		servers.Go(func() { a.podCache.Run(serverCtx) })
	}
	if a.server != nil {
		servers.Go(func() { a.server.Run(serverCtx) })
	}
	servers.Go(func() { a.decider.Run(serverCtx) })
	if m := a.ambient; m != nil {
		defer m.hostNode.Close()
		defer m.pods.Close()
		socket := a.options.Settings.Text("ZTUNNEL_UDS_ADDRESS")
		servers.Go(func() { m.serveZtunnels(serverCtx, socket, a.options.Log.Logger) })
	} else {
		servers.Go(a.removeEarlierHostRules)
	}

	// The workers are stopped first.
	workerCtx, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	var workers sync.WaitGroup
	a.startWorkers(workerCtx, &workers)
	workers.Go(func() {
		if err := a.credentials.Run(workerCtx); err != nil {
			failed <- err
		}
	})

	var err error
	select {
	case <-ctx.Done():
		a.options.Log.Info("the agent is stopping")
	case err = <-failed:
	case err = <-a.exit:
	}
	a.stopping.Store(true)
	stopWorking()
	workers.Wait()
	if err != nil {
		a.reportExit(ctx)
	}
	uninstalled := false
	// The DaemonSet may also be deleted during an exit for another reason. No agent follows then.
	if ctx.Err() != nil {
		var retireErr error
		uninstalled, retireErr = a.retire(context.WithoutCancel(ctx))
		err = errors.Join(err, retireErr)
	}
	stopServing(nil)
	servers.Wait()
	if uninstalled {
		err = errors.Join(err, removeAccess(a.options.Settings, a.config.Kubeconfig))
	}
	return err
}

// startWorkers starts the goroutines that install and guard the plugin, and the goroutines of the
// enabled features.
func (a *Agent) startWorkers(ctx context.Context, group *sync.WaitGroup) {
	group.Go(func() { a.publisher.Run(ctx) })
	group.Go(func() { a.events.run(ctx) })
	group.Go(func() { a.heartbeat.Run(ctx) })
	if a.server != nil {
		group.Go(func() { a.socketProbe.run(ctx) })
	}
	group.Go(func() {
		if !a.kernel.await(ctx, a.reportKernel) {
			return
		}
		group.Go(func() { a.wakeWhenInsertable(ctx) })
		if err := a.node.Run(ctx, a.reportFiles); ctx.Err() == nil {
			a.options.Log.Error("the agent no longer maintains the plugin on the node",
				zap.Error(err))
		}
	})
	if a.auditor != nil {
		group.Go(func() { a.auditor.Run(ctx) })
	}
	if m := a.ambient; m != nil {
		group.Go(func() { m.guard.Run(ctx) })
		group.Go(func() { m.pods.Run(ctx) })
	}
	if key := a.options.Settings.Text("SLUICE_STARTUP_TAINT"); key != "" {
		group.Go(func() { a.removeTaint(ctx, key) })
	}
}

// wakeWhenInsertable polls until the plugin can be inserted, because there is no event for this,
// and then triggers a reconciliation.
func (a *Agent) wakeWhenInsertable(ctx context.Context) {
	ticker := time.NewTicker(insertPollInterval)
	defer ticker.Stop()
	for a.checkInsertable() != nil {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	a.node.Wake()
}

// openPorts opens the ports for probes and Prometheus, and serves them until ctx is done.
func (a *Agent) openPorts(ctx context.Context, group *sync.WaitGroup, failed chan<- error) error {
	for _, port := range []struct {
		name, setting string
		handler       http.Handler
	}{
		{"health", "SLUICE_HEALTH_PORT", a.healthHandler()},
		{"metrics", "MONITORING_PORT", metricsOnly(a.metrics.Handler(a.updateMetrics))},
	} {
		number := a.options.Settings.Int(port.setting)
		if number == 0 {
			continue
		}
		l, err := observe.Listen(ctx, number)
		if err != nil {
			return fmt.Errorf("%s: %w", port.setting, err)
		}
		portServer := a.newPort(port.name, port.handler)
		group.Go(func() {
			if err := portServer.Serve(ctx, l); err != nil {
				failed <- err
			}
		})
	}
	return nil
}

// newPort returns the server for the port with the given name.
func (a *Agent) newPort(name string, h http.Handler) observe.Port {
	return observe.Port{
		Handler: h, FromNode: observe.FromNode(a.options.Settings.Text("SLUICE_NODE_IP")),
		Log:     a.options.Log.Standard("net/http"),
		Refused: func() { a.metrics.Count(metrics.ConnectionsRefused(name), 1) },
		Report: func(r observe.Refusals) {
			a.options.Log.Warn("connections to a port are refused, because there are too many",
				zap.String("port", name), zap.Int("refused", r.Count),
				zap.Stringer("address", r.Address))
		},
	}
}

// healthHandler returns the handler for probes.
func (a *Agent) healthHandler() http.Handler {
	health := observe.Health{
		Ready: a.Readiness, Stuck: a.heartbeat.Stuck, Level: a.options.Log.Level,
	}
	return health.Handler()
}

// metricsOnly returns a handler that passes only GET /metrics to h.
func metricsOnly(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return mux
}

// maxReconcileInterval is the maximum time without a reconciliation before the agent counts as
// stuck. The next reconciliation begins within the resync interval, and may wait some seconds for
// the lock of another process.
func (a *Agent) maxReconcileInterval() time.Duration {
	return time.Minute + 3*a.options.Settings.Duration("SLUICE_RESYNC_INTERVAL")
}
