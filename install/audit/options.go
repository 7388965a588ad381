package audit

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/rulelock"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Options are the options of an auditor. All fields are required unless noted.
type Options struct {
	NodeName string
	// Compare enables repeated comparisons of all pods.
	Compare bool
	// Repair enables the repair of differences.
	Repair bool
	// Interval is the time between audits of a pod without events.
	Interval time.Duration
	// Connections selects the handling of connections that bypass the proxy because they were
	// opened before a repair.
	Connections established.Options
	// Policy applies to pods that started without the plugin.
	Policy repair.Policy
	// Decide and Backend are parts of the plugin's configuration.
	Decide  *decide.Settings
	Backend compat.BackendName
	// Records contains the records of ADD.
	Records record.Store
	// Repairs contains the records of repairs.
	Repairs repair.Store
	// Counters selects the series of the metrics about rule counters.
	Counters CounterMetrics
	// TopPods limits the series of [PodCounters] to the pods with the most packets.
	TopPods int
	// Bypass records when the node's CNI chain contained the plugin. The auditor reports pods to it
	// that started without the plugin.
	Bypass *bypass.Detector

	Pods    podcache.Reader
	Cluster Cluster
	// FindSandboxes finds the sandboxes of pods; see [sandbox.Finder.Find].
	FindSandboxes func(
		context.Context, []sandbox.Pod,
	) (map[sandbox.Pod]sandbox.Sandbox, map[sandbox.Pod]sandbox.Missing)
	// Open opens the network namespace of a sandbox; usually [Open].
	Open func(sandbox.Sandbox) (Namespace, error)
	// ProcessorTime returns the processor time of the process; usually [ProcessorTime].
	ProcessorTime func() time.Duration
	// Ambient returns a pod if the agent has installed rules of ambient mode in it, and otherwise
	// nil. An error means that this is unknown. The field is nil if ambient mode is disabled.
	Ambient func(ctx context.Context, uid string) (*AmbientPod, error)
	// RuleLock is held while the rules of a pod are read or written.
	RuleLock *rulelock.Lock
	// Listen subscribes to changes of rules.
	Listen func() (watch.Events, error)

	Metrics Metrics
	Log     *zap.Logger
}

// FromSettings returns options with the fields that the settings determine. The caller sets the
// others.
func FromSettings(v settings.Values) (Options, error) {
	policy, err := repair.New(v)
	return Options{
		NodeName: v.Text("NODE_NAME"),
		Compare:  v.Bool("SLUICE_AUDIT"), Repair: v.Bool("SLUICE_AUDIT_REPAIR"),
		Interval:    v.Duration("SLUICE_AUDIT_INTERVAL"),
		Connections: established.Options{CountOnly: !v.Bool("SLUICE_AUDIT_END_CONNECTIONS")},
		Policy:      policy,
		Counters:    CounterMetrics(v.Text("SLUICE_COUNTER_METRICS")),
		TopPods:     v.Int("SLUICE_COUNTER_METRICS_PODS"),
	}, err
}

// needsAudits reports whether an enabled feature needs audits of pods.
func (o *Options) needsAudits() bool { return o.Compare || o.Policy.IsEnabled() }

// entersNamespaces reports whether an enabled feature enters the network namespaces of pods outside
// ambient mode. Without such a feature, the agent may lack the permission to enter any.
func (o *Options) entersNamespaces() bool { return o.Compare || o.Policy.InPlace }

// Cluster performs actions through the API server.
type Cluster interface {
	// DeletePod deletes the pod if it has the UID and the version.
	DeletePod(ctx context.Context, pod cluster.Name, uid, resourceVersion string) error
	// LabelPod labels the pod if it has the UID.
	LabelPod(ctx context.Context, pod cluster.Name, uid, key, value string) error
	SendEvent(ctx context.Context, e cluster.Event) error
}

// Metrics receives the metrics; see package metrics.
type Metrics interface {
	Count(s metrics.CounterSeries, n float64)
	Set(s metrics.GaugeSeries, value float64)
	Observe(s metrics.HistogramSeries, value float64)
	// Replace sets all series of a counter, and removes series that are not among the values.
	Replace(name string, values []metrics.CounterValue)
}

// A Namespace is the network namespace of a pod.
type Namespace interface {
	// NS returns the namespace.
	NS() *netns.NS
	// Addresses returns the addresses of the namespace's interfaces; see [route.Addresses].
	Addresses() ([]netip.Addr, error)
	// Check and Repair call Check and Apply of the backend; see [compat.Backend].
	Check(compat.BackendName, rules.Ruleset, compat.Snapshot) (compat.Comparison, error)
	Repair(compat.BackendName, rules.Ruleset, compat.Comparison) (compat.Result, error)
	// HasNoRules reports whether no backend contains a Sluice rule.
	HasNoRules() (bool, error)
	// Foreign returns the effect of foreign rules on the traffic that the ruleset captures. equal
	// is true if Check has found Sluice's rules equal to the ruleset. If it is false, Foreign
	// returns the effect of all rules. If last is not nil and still valid (see
	// [foreign.Snapshot.IsValid]), it returns last. Otherwise it decides within the budget.
	Foreign(rs rules.Ruleset, equal bool, last *foreign.Snapshot, b diff.Budget) foreign.Snapshot
	// EndConnections ends connections that bypass the proxy although the ruleset captures their
	// traffic; see [established.End].
	EndConnections(rs rules.Ruleset, o established.Options) (established.Report, error)
	// Istio lists the rules of Istio's programs, one line for each object.
	Istio() ([]string, error)
	Close() error
}
