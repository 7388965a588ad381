package agent

import (
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/agent/retire"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/mirror"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options of an agent. All are needed but for Companions.
type Options struct {
	Settings settings.Values
	// Version is the program's.
	Version string
	// API says where the API server is, and as whom to ask: by BearerTokenFile, which the kubelet keeps, and CAFile, since both
	// go into the plugin's kubeconfig.
	API *rest.Config
	// Noop is an executable that does nothing; see [node.Settings].
	Noop string
	// Log gets the agent's lines and the plugin's, Level sets what of them is logged.
	Log   *zap.Logger
	Level zap.AtomicLevel
	// Companions run beside the installation from the start until the agent is told to stop.
	Companions []Companion
}

// An Agent is the node agent. Use [New].
type Agent struct {
	options   Options
	config    *config.Config // the plugin's
	metrics   *observe.Metrics
	cluster   *cluster.Client
	judge     *retire.Judge
	kernel    *kernel
	publisher *token.Publisher
	fetch     *source.APIServer
	mirror    *mirror.Mirror // nil if nobody needs the pods
	auditor   *audit.Auditor // nil likewise
	server    *serve.Server  // nil if nothing is served
	node      *node.Node
	announcer *announcer
	reporter  *reporter
	stopping  atomic.Bool // what is given up then has not failed
}

// fetchTime bounds a question of the plugin that has to be passed on to the API server: beyond it the plugin asks for itself.
const fetchTime = 700 * time.Millisecond

// New puts an agent together. Nothing is done yet. The error lists what is wrong with the settings.
func New(o Options) (*Agent, error) {
	element, parsed, err := Element(o.Settings)
	if err != nil {
		return nil, err
	}
	v := o.Settings
	a := &Agent{options: o, config: parsed, metrics: observe.NewMetrics(o.Version), kernel: newKernel(parsed.Backend)}
	if a.cluster, err = cluster.New(o.API); err != nil {
		return nil, err
	}
	a.announcer = newAnnouncer(a.cluster.Tell, v.Text("NODE_NAME"), o.Log)
	a.reporter = newReporter(v, o.Log, a.metrics)
	a.judge = retire.New(retire.Options{
		Client:    a.cluster,
		DaemonSet: cluster.Name{Namespace: v.Text("POD_NAMESPACE"), Name: v.Text("SLUICE_DAEMONSET")},
		NodeName:  v.Text("NODE_NAME"),
		Broken:    a.reporter.daemonSetUnseen,
	})
	a.publisher = token.New(tokenOptions(o, parsed, a.published))
	a.fetch = source.NewAPIServer(source.Options{Kubeconfig: parsed.Kubeconfig, Budget: fetchTime, Try: fetchTime})
	if v.Bool("SLUICE_SERVE") || v.Bool("SLUICE_AUDIT") || v.Bool("REPAIR_ENABLED") {
		if err := a.prepareAudit(); err != nil {
			return nil, err
		}
	}
	if v.Bool("SLUICE_SERVE") {
		a.prepareServing(element)
	}
	a.options.Companions = slices.Clone(o.Companions)
	if a.auditor != nil {
		a.options.Companions = append(a.options.Companions, a.auditPods)
	}
	if key := v.Text("SLUICE_STARTUP_TAINT"); key != "" {
		a.options.Companions = append(a.options.Companions, removeTaint(key))
	}
	s := NodeSettings(v, element, o.Noop)
	s.Gate = a.gate
	if a.node, err = node.New(s, node.Options{}); err != nil {
		return nil, err
	}
	return a, nil
}

// prepareServing makes what answers the plugin.
func (a *Agent) prepareServing(element []byte) {
	a.server = serve.New(serve.Options{
		Socket: agent.SocketIn(a.config.RunDir), Objects: a.mirror, Policy: policy(element), Locate: a.auditor.Locate,
		Log: a.reporter.pluginLine, Added: a.reporter.added, Answered: a.reporter.answered, Failed: a.reporter.serveFailed,
	})
}
