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
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/nft/established"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Options say what is audited and how. All fields are needed but where it is said.
type Options struct {
	NodeName string
	// Compare looks at all pods, again and again; Mend repairs what differs in place. Interval is
	// after how long a pod is looked at again when no event says so.
	Compare, Mend bool
	Interval      time.Duration
	// Connections says what becomes of connections that bypass the proxy since they were opened
	// before a repair.
	Connections established.Options
	// Policy is about pods that started before the plugin was there.
	Policy repair.Policy
	// Decide and Engine are the plugin's configuration.
	Decide *decide.Settings
	Engine compat.BackendName
	// Records are those of ADD, Repairs has what was repaired.
	Records record.Store
	Repairs repair.Store
	// Bypass knows since when the node's CNI chain is as it should be, and is told of pods that
	// were started without the plugin since.
	Bypass *bypass.Detector

	Pods    Pods
	Cluster Cluster
	// Find finds sandboxes, and Open opens one.
	Find func(context.Context, []sandbox.Pod) (map[string]sandbox.Sandbox, []sandbox.Missing)
	Open func(sandbox.Sandbox) (Namespace, error)
	// Used tells how much time of processors was used until now; [Used].
	Used func() time.Duration
	// Listen begins to listen for changes of rules.
	Listen func() (Events, error)

	Metrics Metrics
	Log     *zap.Logger
}

// audits reports whether any pod is looked at.
func (o *Options) audits() bool { return o.Compare || o.Policy.Any() }

// enters reports whether namespaces are entered at all. Otherwise the agent has no right to.
func (o *Options) enters() bool { return o.Compare || o.Policy.InPlace }

// Pods are the node's pods; [podcache.Cache] has them.
type Pods interface {
	Synced() bool
	Pods() []podcache.Item
	Item(namespace, name string) (podcache.Item, bool)
	Pod(ctx context.Context, ref source.Ref) (pod []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (namespace []byte, fetched bool, err error)
}

// Cluster is what is done by the API server.
type Cluster interface {
	// DeletePod deletes the pod if it is still the one of the version, LabelPod labels it if it is
	// still the one of the UID.
	DeletePod(ctx context.Context, pod cluster.Name, uid, resourceVersion string) error
	LabelPod(ctx context.Context, pod cluster.Name, uid, key, value string) error
	Tell(ctx context.Context, e cluster.Event) error
}

// Metrics take what is counted; see package metrics.
type Metrics interface {
	Count(s metrics.CounterSeries, n float64)
	Set(s metrics.GaugeSeries, value float64)
	Observe(s metrics.HistogramSeries, value float64)
}

// Events are heard of all namespaces that were added; [watch.Watcher] hears them.
type Events interface {
	Add(*netns.NS) error
	Next(ctx context.Context) (watch.Event, error)
	Close() error
}

// A Namespace is the network namespace of a pod.
type Namespace interface {
	// NS is the namespace itself.
	NS() *netns.NS
	// Addresses are those of its interfaces; see [route.Addresses].
	Addresses() ([]netip.Addr, error)
	// Check, Recheck and Mend are those of the engine's [compat.Backend].
	Check(compat.BackendName, rules.Ruleset) (compat.Comparison, error)
	Recheck(compat.Comparison, rules.Ruleset) (compat.Comparison, error)
	Mend(e compat.BackendName, rs rules.Ruleset, found compat.Comparison) (compat.Result, error)
	// Bare reports whether no engine has a rule of ours.
	Bare() (bool, error)
	// Foreign returns what rules of others do to the traffic that the ruleset captures. It returns
	// the last reading if that is not nil and the tables of iptables-legacy have not changed since,
	// and decides anew within the budget otherwise.
	Foreign(rs rules.Ruleset, last *foreign.Reading, b diff.Budget) foreign.Reading
	// EndConnections ends connections that bypass the proxy although the ruleset captures such
	// ones; see [established.End].
	EndConnections(rs rules.Ruleset, o established.Options) (established.Report, error)
	// Istio lists what Istio's programs have left, a line for each thing.
	Istio() ([]string, error)
	Close() error
}
