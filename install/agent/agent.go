package agent

import (
	"context"
	"encoding/json"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/agent/credential"
	"github.com/sluice-mesh/sluice/install/agent/heartbeat"
	"github.com/sluice-mesh/sluice/install/agent/logs"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/agent/retire"
	"github.com/sluice-mesh/sluice/install/apiclient"
	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/rulelock"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/install/token"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options are the options of an agent. All except TokenReplacementTimeout are required.
type Options struct {
	Settings settings.Values
	// Version is the version of the program.
	Version string
	// API contains the address of the API server and the credentials. The agent sets Outcome.
	API apiclient.Options
	// Noop is the path of the no-op executable; see [node.Settings].
	Noop string
	// Log receives the messages of the agent and the plugin.
	Log *logs.Log
	// TokenReplacementTimeout is the time within which the kubelet must replace a token that the
	// API server rejects; see [credential.Options].
	TokenReplacementTimeout time.Duration
}

// An Agent is the node agent. Use [New].
type Agent struct {
	options     Options
	config      *config.Config // of the plugin
	metrics     *observe.Metrics
	cluster     *cluster.Client
	credentials *credential.Monitor // of the agent's own credentials
	decider     *retire.Decider
	kernel      *kernelTester
	publisher   *token.Publisher // of the plugin's kubeconfig
	podFetcher  *source.APIServer
	podCache    *podcache.Cache // nil if nothing needs the pods
	auditor     *audit.Auditor  // nil if podCache is nil
	ruleLock    *rulelock.Lock
	bypass      *bypass.Detector
	server      *serve.Server // nil if SLUICE_SERVE is false
	socketProbe *socketProbe  // nil if server is nil
	ambient     *ambientMode  // nil if ambient mode is disabled
	node        *node.Node
	heartbeat   *heartbeat.Monitor
	events      *nodeEvents
	reporter    *reporter
	stopping    atomic.Bool // if set, interrupted requests are not reported as failures
	exit        chan error  // buffered; receives the reason for an exit
}

// fetchTimeout limits a request to the API server for a pod or a namespace that is not cached.
// After this time the plugin sends the request itself.
const fetchTimeout = 700 * time.Millisecond

// New returns an agent that has not been started. If several settings are invalid, the error may
// name only some of them.
func New(o Options) (*Agent, error) {
	element, parsed, err := Element(o.Settings)
	if err != nil {
		return nil, err
	}
	v := o.Settings
	a := &Agent{
		options: o, config: parsed, metrics: observe.NewMetrics(o.Version),
		kernel: newKernelTester(parsed.Backend), exit: make(chan error, 1),
		ruleLock: new(rulelock.Lock),
	}
	a.credentials = credential.New(credential.Options{
		TokenFile: o.API.TokenFile, CAFile: o.API.CAFile,
		Record:  filepath.Join(v.Text("CNI_AGENT_RUN_DIR"), exitsFile),
		Changed: a.credentialsChanged, ReplacementTimeout: o.TokenReplacementTimeout,
	})
	o.API.Outcome = a.credentials.RecordResponse
	api, err := apiclient.New(o.API)
	if err != nil {
		return nil, err
	}
	a.cluster = cluster.New(api)
	a.events = newNodeEvents(a.cluster.SendEvent, v.Text("NODE_NAME"), o.Log.Logger)
	a.reporter = newReporter(v, o.Log.Logger, a.metrics)
	a.bypass = a.newBypass()
	a.decider = retire.New(retire.Options{
		Client: a.cluster,
		DaemonSet: cluster.Name{
			Namespace: v.Text("POD_NAMESPACE"), Name: v.Text("SLUICE_DAEMONSET"),
		},
		NodeName:    v.Text("NODE_NAME"),
		WatchFailed: a.reporter.reportDaemonSetUnwatched,
	})
	o.Log.OnSuppressed(func() { a.metrics.Count(metrics.LogLinesSuppressed(), 1) })
	a.publisher = token.New(tokenOptions(o, parsed, a.tokenChanged))
	a.podFetcher = source.NewAPIServer(source.Options{
		Kubeconfig: parsed.Kubeconfig, Timeout: fetchTimeout, RequestTimeout: fetchTimeout,
	})
	if v.Bool("SLUICE_SERVE") || v.Bool("SLUICE_AUDIT") || v.Bool("REPAIR_ENABLED") {
		if err := a.preparePods(api); err != nil {
			return nil, err
		}
	}
	if err := a.prepareAmbient(); err != nil {
		return nil, err
	}
	if v.Bool("SLUICE_SERVE") {
		a.prepareServing(element)
	}
	s := NodeSettings(v, element, o.Noop)
	s.ReadyToInsert = a.checkInsertable
	if a.node, err = node.New(s); err != nil {
		return nil, err
	}
	a.heartbeat = heartbeat.New(a.loops()...)
	return a, nil
}

// startingPods provides the plugin with the objects for pods that start.
type startingPods struct{ *podcache.Cache }

// Namespace implements [serve.Objects].
func (s startingPods) Namespace(
	ctx context.Context, name string,
) (object []byte, fetched bool, err error) {
	return s.CurrentNamespace(ctx, name)
}

// prepareServing creates the server of the agent's socket, and its probe.
func (a *Agent) prepareServing(element []byte) {
	o := serve.Options{
		Socket: agent.SocketIn(a.config.RunDir), Objects: startingPods{a.podCache},
		Policy: func() json.RawMessage { return slices.Clone(element) },
		Locate: a.auditor.Locate,
		Status: func() any { return a.status() },
		Log:    a.reporter.logPluginLine, Added: a.noteAdd,
		PodFetched: a.podCache.Keep, Answered: a.reporter.countAnswer,
		Failed: func(err error) {
			a.options.Log.Warn("a request on the agent's socket failed", zap.Error(err))
		},
	}
	if a.ambient != nil {
		o.Enroll, o.Host = a.ambient.pods.Add, a.ambient.hostRules
	}
	a.server = serve.New(o)
	a.socketProbe = newSocketProbe(agent.SocketIn(a.config.RunDir), a.server.Listening)
}
