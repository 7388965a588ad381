package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/serve/mirror"
	"github.com/sluice-mesh/sluice/plugin/config"
)

// A Companion does something on the node beside the installation, until ctx ends. It must then return soon.
type Companion func(ctx context.Context, w World)

// World is what companions share with the agent.
type World struct {
	// Config is the plugin's configuration, as the plugin understands it.
	Config *config.Config
	// NodeName is the node's name.
	NodeName string
	// Cluster asks the API server, Pods has the node's pods; nil if nobody needs them.
	Cluster *cluster.Client
	Pods    *mirror.Mirror
	Metrics *observe.Metrics
	Log     *zap.Logger
	// Ready tells whether an ADD would succeed now.
	Ready func() observe.Readiness
}

// gatePoll is how often is looked at the start whether the plugin can be inserted: it is to be there within a second.
const gatePoll = 20 * time.Millisecond

// Run keeps the node until ctx ends, and then takes the plugin off it if no agent comes back. The error is one of the ports, or of
// uninstalling.
func (a *Agent) Run(ctx context.Context) error {
	defer a.cluster.Close()
	defer a.fetch.Close()
	// Ports and answers to the plugin end last.
	serving, stopServing := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopServing(nil)
	var servants sync.WaitGroup
	failed := make(chan error, 2)
	if err := a.openPorts(serving, &servants, failed); err != nil {
		stopServing(nil)
		servants.Wait()
		return err
	}
	if a.mirror != nil {
		servants.Go(func() { a.mirror.Run(serving) })
	}
	if a.server != nil {
		servants.Go(func() { a.server.Run(serving) })
	}
	servants.Go(func() { a.judge.Run(serving) })
	working, stopWorking := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWorking()
	var workers sync.WaitGroup
	a.work(working, &workers)

	var err error
	select {
	case <-ctx.Done():
		a.options.Log.Info("told to stop")
	case err = <-failed:
	}
	a.stopping.Store(true)
	stopWorking()
	workers.Wait()
	if err == nil {
		err = a.retire(context.WithoutCancel(ctx))
	}
	stopServing(nil)
	servants.Wait()
	return err
}

// work starts what installs and guards.
func (a *Agent) work(ctx context.Context, group *sync.WaitGroup) {
	group.Go(func() { a.publisher.Run(ctx) })
	group.Go(func() { a.announcer.run(ctx) })
	group.Go(func() {
		if !a.kernel.await(ctx, a.kernelAnswered) {
			return
		}
		group.Go(func() { a.wakeAtGate(ctx) })
		if err := a.node.Run(ctx, a.passed); ctx.Err() == nil {
			a.options.Log.Error("the node is not kept any more", zap.Error(err))
		}
	})
	world := World{
		Config: a.config, NodeName: a.options.Settings.Text("NODE_NAME"), Cluster: a.cluster, Pods: a.mirror,
		Metrics: a.metrics, Log: a.options.Log, Ready: a.Readiness,
	}
	for _, c := range a.options.Companions {
		group.Go(func() { c(ctx, world) })
	}
}

// wakeAtGate makes the node be looked at as soon as the plugin could work, for which there is no event.
func (a *Agent) wakeAtGate(ctx context.Context) {
	ticker := time.NewTicker(gatePoll)
	defer ticker.Stop()
	for a.gate() != nil {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
	a.node.Wake()
}

// openPorts starts to answer probes and Prometheus.
func (a *Agent) openPorts(ctx context.Context, group *sync.WaitGroup, failed chan<- error) error {
	health := observe.Health{Ready: a.Readiness, Alive: a.alive, Level: a.options.Level}
	for _, port := range []struct {
		setting string
		handler http.Handler
	}{
		{"SLUICE_HEALTH_PORT", health.Handler()},
		{"MONITORING_PORT", metricsOnly(a.metrics.Handler(a.refresh))},
	} {
		number := a.options.Settings.Int(port.setting)
		if number == 0 {
			continue
		}
		l, err := observe.Listen(ctx, number)
		if err != nil {
			return fmt.Errorf("%s: %w", port.setting, err)
		}
		group.Go(func() {
			if err := observe.Serve(ctx, l, port.handler); err != nil {
				failed <- err
			}
		})
	}
	return nil
}

func metricsOnly(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", h)
	return mux
}

// longestPass is after how long without a pass the agent counts as stuck: passes wait for another process for some seconds, and for
// the timer.
func (a *Agent) longestPass() time.Duration {
	return time.Minute + 3*a.options.Settings.Duration("SLUICE_RESYNC_INTERVAL")
}

// alive fails if the node has not been looked at for too long.
func (a *Agent) alive() error {
	at := a.node.Status().At
	if !at.IsZero() && time.Since(at) > a.longestPass() {
		return errors.New("the node has not been looked at since " + at.UTC().Format(time.RFC3339))
	}
	return nil
}
