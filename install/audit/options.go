package audit

import (
	"context"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/mirror"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/watch"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// Options say what is audited and how. All fields are needed but where it is said.
type Options struct {
	NodeName string
	// Compare looks at all pods, again and again; Mend repairs what differs in place. Interval is after how long a pod is looked at
	// again when no event says so.
	Compare, Mend bool
	Interval      time.Duration
	// Policy is about pods that started before the plugin was there.
	Policy repair.Policy
	// Decide and Engine are the plugin's configuration.
	Decide *decide.Settings
	Engine compat.Engine
	// Records are those of ADD, Ledger has what was repaired.
	Records record.Store
	Ledger  repair.Ledger

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

// audits tells whether any pod is looked at.
func (o *Options) audits() bool { return o.Compare || o.Policy.Any() }

// enters tells whether namespaces are entered at all. Otherwise the agent has no right to.
func (o *Options) enters() bool { return o.Compare || o.Policy.InPlace }

// Pods are the node's pods; [mirror.Mirror] has them.
type Pods interface {
	Synced() bool
	Pods() []mirror.Item
	Item(namespace, name string) (mirror.Item, bool)
	Pod(ctx context.Context, ref source.Ref) (pod []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (namespace []byte, fetched bool, err error)
}

// Cluster is what is done by the API server.
type Cluster interface {
	// DeletePod deletes the pod if it is still the one of the version, LabelPod labels it if it is still the one of the UID.
	DeletePod(ctx context.Context, pod cluster.Name, uid, resourceVersion string) error
	LabelPod(ctx context.Context, pod cluster.Name, uid, key, value string) error
	Tell(ctx context.Context, e cluster.Event) error
}

// Metrics take what is counted; see package metrics.
type Metrics interface {
	Count(name string, n float64, labels ...string)
	Set(name string, value float64, labels ...string)
	Observe(name string, value float64, labels ...string)
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
	Check(compat.Engine, rules.Ruleset) (compat.Comparison, error)
	Recheck(compat.Comparison, rules.Ruleset) (compat.Comparison, error)
	Mend(e compat.Engine, rs rules.Ruleset, found compat.Comparison) (compat.Result, error)
	// Bare tells whether no engine has a rule of ours.
	Bare() (bool, error)
	// Ahead lists what others have in the namespace that comes in the way of the rules of an engine, though these are as they should be: a
	// sentence for each thing.
	Ahead(compat.Engine, rules.Redirect) []string
	// Istio lists what Istio's programs have left, a line for each thing.
	Istio() ([]string, error)
	Close() error
}
