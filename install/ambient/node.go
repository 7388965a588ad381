package ambient

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// Options are the options of a node. All are required unless noted.
type Options struct {
	NodeName string
	// Decide are the settings of decisions, including the settings of ambient mode.
	Decide *decide.Settings
	// Backend installs the rules in pods.
	Backend compat.Backend
	Pods    Pods
	Cluster Cluster
	Ztunnel Ztunnel
	Host    Host
	// Find finds the sandboxes of pods; see [sandbox.Finder.Find].
	Find func(context.Context, []sandbox.Pod) (map[string]sandbox.Sandbox, []sandbox.Missing)
	// IsHost reports whether a network namespace is the node's, in which no pod's rules may be.
	IsHost func(netns.ID) bool
	// RulesChanged receives the UID of a pod whose rules were installed or removed. It must not
	// block.
	RulesChanged func(uid string)
	// Enrolled receives the result of each attempt to enrol a pod, nil for a success. It must not
	// block.
	Enrolled func(error)
	Log      *zap.Logger
	// AddTime limits the wait of an ADD; by default 30 s.
	AddTime time.Duration
	// ReportWait is the time after which an ADD that waits for ztunnel is reported in an event; by
	// default 2 s.
	ReportWait time.Duration
	// Interval is the time between two looks at a pod without a change; by default 30 s.
	Interval time.Duration
}

// Pods provides the node's pods; implemented by [podcache.Cache].
type Pods interface {
	Synced() bool
	Pods() []podcache.Item
	Item(namespace, name string) (podcache.Item, bool)
	Pod(ctx context.Context, ref source.Ref) (pod []byte, fetched bool, err error)
	Namespace(ctx context.Context, name string) (namespace []byte, fetched bool, err error)
}

// Cluster sends requests to the API server; implemented by [cluster.Client].
type Cluster interface {
	// AnnotatePod sets an annotation of the pod with the UID, or removes it if value is nil.
	AnnotatePod(ctx context.Context, pod cluster.Name, uid, key string, value *string) error
	SendEvent(ctx context.Context, e cluster.Event) error
}

// Ztunnel tells ztunnel about pods; implemented by [ztunnel.Server].
type Ztunnel interface {
	Restore([]ztunnel.Pod)
	Add(context.Context, ztunnel.Pod) error
	Remove(ctx context.Context, uid string) error
	// IsConnected reports whether a ztunnel is connected.
	IsConnected() bool
	// IsReplaced reports whether another agent listens at ztunnel's socket.
	IsReplaced() bool
}

// Host keeps the node's rules for probes; implemented by the guard of package hostrules.
type Host interface {
	Replace(map[string][]netip.Addr) error
	Set(uid string, addresses []netip.Addr) error
	Remove(uid string) error
}

const (
	defaultAddTime    = 30 * time.Second
	defaultReportWait = 2 * time.Second
	defaultInterval   = 30 * time.Second
	// workTime limits the work on a running pod. Other pods are worked on meanwhile.
	workTime = 10 * time.Second
	// workers is the number of running pods that are worked on at a time. A ztunnel that does not
	// answer holds up so many.
	workers = 8
	// busyDelay is the time before the next look at a pod that is worked on.
	busyDelay = 200 * time.Millisecond
	// startDelay is the time before the next look at a pod that may be starting, which needs a
	// search.
	startDelay = time.Second
	// minRetry and maxRetry bound the exponential backoff of a pod that could not be enrolled.
	minRetry = 250 * time.Millisecond
	maxRetry = 30 * time.Second
)

// A Node redirects the pods of a node that are in ambient mode. Use [New]. Its methods are safe for
// concurrent use.
type Node struct {
	Options
	queue    workqueue.TypedRateLimitingInterface[podName]
	restored chan struct{} // closed when the pods of the node are known

	mu   sync.Mutex
	pods map[string]*pod // by UID
	// unsearched are the UIDs of pods outside ambient mode that existed when the agent started, and
	// whose network namespaces were not searched for rules of an earlier agent yet.
	unsearched map[podName]string
}

// podName identifies a pod in the API server.
type podName struct{ namespace, name string }

// New returns a node that does nothing until [Node.Run].
func New(o Options) *Node {
	if o.AddTime == 0 {
		o.AddTime = defaultAddTime
	}
	if o.ReportWait == 0 {
		o.ReportWait = defaultReportWait
	}
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	return &Node{
		Options: o, restored: make(chan struct{}), pods: map[string]*pod{},
		unsearched: map[podName]string{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[podName](minRetry, maxRetry)),
	}
}

// Changed reports that a pod was added, changed or deleted; with an empty name, that any pod of the
// namespace may have changed; with empty names, any pod. It does not block.
func (n *Node) Changed(namespace, name string) {
	if name != "" {
		n.queue.Add(podName{namespace, name})
		return
	}
	for _, item := range n.Pods.Pods() {
		if namespace == "" || item.Namespace == namespace {
			n.queue.Add(podName{item.Namespace, item.Name})
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		n.queue.Add(podName{p.ref.Namespace, p.ref.Name})
	}
}

// Run keeps the pods of the node enrolled until the context ends. What it has done stays, and Add
// still enrols pods afterwards; their annotation is left to the next agent.
func (n *Node) Run(ctx context.Context) {
	defer n.queue.ShutDown()
	if !n.restore(ctx) {
		return
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { n.work(ctx) })
	}
	ticker := time.NewTicker(n.Interval)
	defer ticker.Stop()
	n.Changed("", "")
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			n.Changed("", "")
		}
	}
	n.queue.ShutDown()
	group.Wait()
}

func (n *Node) work(ctx context.Context) {
	for {
		name, shutdown := n.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		n.visit(ctx, name)
		n.queue.Done(name)
	}
}

// visit reconciles a pod, and plans the next visit if that is necessary.
func (n *Node) visit(ctx context.Context, name podName) {
	deadline, cancel := context.WithTimeout(ctx, workTime)
	defer cancel()
	switch retryAfter, err := n.reconcile(deadline, name); {
	case err != nil:
		n.queue.AddRateLimited(name)
	case retryAfter > 0:
		n.queue.AddAfter(name, retryAfter)
	default:
		n.queue.Forget(name)
	}
}

// Close releases the network namespaces of pods. Run and all calls of Add must have ended.
func (n *Node) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		_ = p.ns.Close()
	}
}
