package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/ambient"
	"github.com/sluice-mesh/sluice/install/hostrules"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// ambientMode contains the objects of ambient mode.
type ambientMode struct {
	hostNode *hostrules.Node
	guard    *hostrules.Guard
	ztunnels *ztunnel.Server
	pods     *ambient.Node
}

// prepareAmbient creates the objects of ambient mode, if it is enabled.
func (a *Agent) prepareAmbient() error {
	if a.config.Decide.Ambient == nil {
		return nil
	}
	v, log := a.options.Settings, a.options.Log.Logger
	if !v.Bool("SLUICE_SERVE") {
		return errors.New("AMBIENT_ENABLED: needs SLUICE_SERVE, " +
			"because the plugin asks the agent to enroll pods")
	}
	backend, err := compat.Choose(a.config.Backend)
	if err != nil {
		return err
	}
	hostNode := &hostrules.Node{ProcDir: v.Text("SLUICE_MOUNTED_PROC_DIR")}
	m := &ambientMode{
		hostNode: hostNode, guard: newGuard(hostNode, a.config, backend, a.reportHostRules),
		// The logger has no name, because package logs keeps only messages of unnamed loggers for
		// the status.
		ztunnels: ztunnel.New(log, func(n int) { a.metrics.Set(metrics.ZtunnelConnected(), float64(n)) }),
	}
	m.pods = ambient.New(ambient.Options{
		NodeName: v.Text("NODE_NAME"), Decide: &a.config.Decide, Backend: backend,
		Pods: a.podCache, Cluster: a.cluster, Ztunnel: m.ztunnels, Host: m.guard,
		Find:         sandbox.New(sandboxOptions(v)).Find,
		IsHost:       hostNode.IsHost,
		RulesChanged: a.auditor.RulesChanged, Found: a.auditor.NoteSandbox,
		EnrollAttempted: func(err error) {
			result := metrics.Success
			if err != nil {
				result = metrics.Failure
			}
			a.metrics.Count(metrics.AmbientEnrollments(result), 1)
		},
		RuleLock: a.ruleLock, Log: log,
	})
	a.ambient = m
	return nil
}

// newGuard returns the guard of the node's rules for probes.
func newGuard(
	hostNode *hostrules.Node, c *config.Config, backend compat.Backend,
	report func(hostrules.Report),
) *hostrules.Guard {
	p := rules.DefaultAmbientHost()
	s := c.Decide.Ambient
	p.ProbeSourceIPv4, p.ProbeSourceIPv6, p.IPv6 = s.ProbeSourceIPv4, s.ProbeSourceIPv6, s.IPv6
	p.Counters, p.Without = c.Decide.Counters, c.Decide.Without
	return hostrules.New(hostrules.Options{
		Parameters: p, Backend: backend, Open: hostNode.Open, Lock: hostNode.Lock,
		// The guard needs no RuleLock: pods cannot change the node's rules.
		Do: hostNode.Do,
		FindKubelet: func() (hostrules.Kubelet, error) {
			host := (*netns.NS)(nil).ID() // Do has entered the node's network namespace
			return hostrules.FindKubelet(hostNode.ProcDir, host)
		},
		IsKubeletCurrent: func(k hostrules.Kubelet) bool { return k.IsCurrent(hostNode.ProcDir) },
		Subscribe:        watch.Subscribe, Report: report,
	})
}

// hostRules returns the parameters of the rules that the node should have. The rules command
// requests them through the socket.
func (m *ambientMode) hostRules() (agent.HostRules, error) {
	p, backend, ok := m.guard.Parameters()
	if !ok {
		return agent.HostRules{}, source.WithKind(source.Unavailable,
			errors.New("the agent does not know the node's pods yet"))
	}
	return agent.HostRules{
		NetNS: m.hostNode.NetNS(), Proc: m.hostNode.ProcDir,
		Backend: string(backend), Parameters: p,
	}, nil
}

// hostRulesReason is the reason of events about the node's rules for probes.
const hostRulesReason = "HostRulesChanged"

// reportHostRules reports a change of the node's rules for probes, or of the node's kubelet.
func (a *Agent) reportHostRules(r hostrules.Report) {
	a.metrics.Count(metrics.HostRulesEvents(string(r.Kind)), 1)
	if r.Kind == hostrules.KubeletChanged {
		a.options.Log.Info(r.Summary(), zap.Stringer("kubelet", r.Kubelet))
		return
	}
	fields := []zap.Field{zap.String("event", string(r.Kind)), zap.Error(r.Err)}
	if r.PID != 0 {
		fields = append(fields, zap.String("process", r.Process), zap.Uint32("process_id", r.PID))
	}
	a.options.Log.Warn(r.Summary(), fields...)
	a.events.notePast(problemEvent{reason: hostRulesReason, message: r.String()})
}

// serveZtunnels serves the connections of ztunnels to the socket until ctx is done.
func (m *ambientMode) serveZtunnels(ctx context.Context, socket string, log *zap.Logger) {
	if err := m.ztunnels.Serve(ctx, socket); err != nil {
		log.Error("ztunnel is not served", zap.Error(err))
	}
}

// uninstall makes all pods leave ambient mode, and at the same time removes the node's rules for
// probes, because the kubelet may kill the agent while it waits for ztunnel or the API server. If
// the pods stayed in ambient mode without an agent, the next ztunnel would not learn about them and
// would refuse their captured traffic.
func (m *ambientMode) uninstall(ctx context.Context) error {
	var hostErr error
	var group sync.WaitGroup
	group.Go(func() { hostErr = m.guard.Uninstall() })
	podsErr := m.pods.Uninstall(ctx)
	group.Wait()
	if err := errors.Join(podsErr, hostErr); err != nil {
		return fmt.Errorf("uninstall ambient mode: %w", err)
	}
	return nil
}

// removeAmbientRules removes the rules of pods in ambient mode, and then the node's rules for
// probes, without an agent. If ambient mode is disabled and the node's /proc cannot be read, it
// only logs that rules may remain, because this node may never have had any.
func removeAmbientRules(v settings.Values, c *config.Config, log *zap.Logger) error {
	procDir := v.Text("SLUICE_MOUNTED_PROC_DIR")
	removed, podsErr := ambient.RemoveRules(procDir)
	if removed > 0 {
		log.Warn("the rules of pods in ambient mode were removed: the pods communicate directly, not "+
			"through ztunnel, and keep the annotation ambient.istio.io/redirection until they are "+
			"replaced or the annotation is removed", zap.Int("pods", removed))
	}
	if podsErr != nil && c.Decide.Ambient == nil {
		log.Warn("pods cannot be searched for rules of ambient mode; rules may remain if an agent of "+
			"this node had ambient mode enabled", zap.Error(podsErr))
		podsErr = nil
	}
	_, hostErr := removeHostRules(v, c)
	return errors.Join(podsErr, hostErr)
}

// removeHostRules removes the node's rules for probes without a guard, and reports whether it
// removed any. If ambient mode is disabled and the node's network namespace cannot be opened, for
// example because the node's /proc is not mounted, it does nothing.
func removeHostRules(v settings.Values, c *config.Config) (removed bool, err error) {
	hostNode := &hostrules.Node{ProcDir: v.Text("SLUICE_MOUNTED_PROC_DIR")}
	defer hostNode.Close()
	if c.Decide.Ambient == nil {
		ns, err := hostNode.Open()
		if err != nil {
			return false, nil
		}
		_ = ns.Close()
	}
	if removed, err = hostNode.Remove(); err != nil {
		return removed, fmt.Errorf("remove the node's rules for probes: %w", err)
	}
	return removed, nil
}

// removeEarlierHostRules removes the rules for probes that an earlier agent with ambient mode has
// left on the node.
func (a *Agent) removeEarlierHostRules() {
	removed, err := removeHostRules(a.options.Settings, a.config)
	if err != nil {
		a.options.Log.Warn("the node's rules of an earlier agent with ambient mode cannot be removed",
			zap.Error(err))
	} else if removed {
		a.options.Log.Info("the node's rules of an earlier agent with ambient mode were removed")
	}
}
