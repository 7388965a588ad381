package ambient

import (
	"cmp"
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/rulelock"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// Options are the options of a [Node]. All except the durations are required.
type Options struct {
	NodeName string
	// Decide are the settings of decisions, including the settings of ambient mode.
	Decide *decide.Settings
	// Backend installs the rules in pods.
	Backend compat.Backend
	Pods    podcache.Reader
	Cluster Cluster
	Ztunnel Ztunnel
	Host    Host
	// Find finds the sandboxes of pods; see [sandbox.Finder.Find].
	Find func(context.Context, []sandbox.Pod) (map[sandbox.Pod]sandbox.Sandbox, map[sandbox.Pod]sandbox.Missing)
	// IsHost reports whether a network namespace is the node's, in which rules of pods must not be
	// installed.
	IsHost func(netns.ID) bool
	// RulesChanged is called with the UID of a pod after each attempt to install or remove its
	// rules, even if nothing changed. It must not block.
	RulesChanged func(uid string)
	// Found is called with the sandbox of a running pod after the first attempt to enroll the pod
	// in it. It is not called for a pod that is being deleted, or that its ADD has enrolled in this
	// sandbox. It may take seconds.
	Found func(sandbox.Sandbox)
	// EnrollAttempted is called with the result of each ADD, and of each attempt to enroll a
	// running pod that is not enrolled: nil for a success. It must not block.
	EnrollAttempted func(error)
	// RuleLock is held while the rules of a pod are read or written.
	RuleLock *rulelock.Lock
	Log      *zap.Logger
	// AddTimeout is the time limit of [Node.Add], which waits for ztunnel; 30 s if it is 0.
	AddTimeout time.Duration
	// ReportWait is the time after which an ADD that waits for ztunnel is reported in an event; 2 s
	// if it is 0.
	ReportWait time.Duration
	// ModeTime is the time limit for reading the Kubernetes namespaces of the node's pods when the
	// agent starts; 5 s if it is 0. Meanwhile no pod is enrolled, and no ztunnel is served.
	ModeTime time.Duration
	// Interval is the time between two reconciliations of an unchanged pod; 30 s if it is 0.
	Interval time.Duration
	// ReconcileTime is the time limit for the reconciliation of one pod, without the requests that
	// report its result; 10 s if it is 0.
	ReconcileTime time.Duration
	// SandboxTime is the time after which the missing network namespace of a running pod is
	// reported, and a network namespace without the pod's addresses is accepted; 1 min if it is 0.
	// After a reboot, the runtime creates all sandboxes again.
	SandboxTime time.Duration
	// ZtunnelTime is the time after which a running pod that waits for a ztunnel to connect is
	// reported; 10 s if it is 0. After a restart of the agent, ztunnel connects again.
	ZtunnelTime time.Duration
}

// Cluster sends requests to the API server; implemented by [cluster.Client].
type Cluster interface {
	// AnnotatePod sets an annotation of the pod with the UID, or removes it if value is nil.
	AnnotatePod(ctx context.Context, pod cluster.Name, uid, key string, value *string) error
	SendEvent(ctx context.Context, e cluster.Event) error
}

// Ztunnel sends pods to ztunnel; implemented by [ztunnel.Server].
type Ztunnel interface {
	Restore([]ztunnel.Pod)
	Add(context.Context, ztunnel.Pod) error
	Remove(ctx context.Context, uid string) error
	// Refused returns an error if each connected ztunnel has refused the pod.
	Refused(uid string) error
	// IsConnected reports whether a ztunnel is connected.
	IsConnected() bool
	// IsReplaced reports whether another agent listens at ztunnel's socket.
	IsReplaced() bool
}

// Host changes the addresses of pods in the node's rules for probes; implemented by the Guard of
// package hostrules.
type Host interface {
	Replace(map[string][]netip.Addr) error
	Set(uid string, addresses []netip.Addr) error
	Remove(uid string) error
}

const (
	// workers is the number of pods that are reconciled in parallel. While ztunnel does not reply,
	// each worker waits for it.
	workers = 8
	// busyDelay is the delay of the next reconciliation of a pod whose lock was held.
	busyDelay = 200 * time.Millisecond
	// startDelay is the delay of the next reconciliation of a pod that may be starting. It is
	// longer than busyDelay, because each reconciliation searches for the pod's sandbox.
	startDelay = time.Second
	// minRetry and maxRetry bound the exponential backoff of a pod whose reconciliation failed.
	minRetry = 250 * time.Millisecond
	maxRetry = 30 * time.Second
)

// A Node redirects the pods of a node that are in ambient mode. Use [New]. Its methods are safe for
// concurrent use.
type Node struct {
	Options
	queue    workqueue.TypedRateLimitingInterface[cluster.Name]
	restored chan struct{} // closed by restore, when the pods of the node are known
	// uninstalled is set by Uninstall, before it reads pods.
	uninstalled atomic.Bool

	mu   sync.Mutex
	pods map[string]*pod // by UID
	// unsearched contains the UIDs of pods outside ambient mode whose network namespaces must be
	// searched for rules of an earlier agent. These pods existed when the agent started, or left
	// ambient mode before their network namespaces were found.
	unsearched map[cluster.Name]string
	// left contains the UIDs of pods from which the node has removed the rules, until the cache has
	// reported that they no longer have the annotation "enabled".
	left map[cluster.Name]string
}

// New returns a node that does nothing until [Node.Run].
func New(o Options) *Node {
	o.AddTimeout = cmp.Or(o.AddTimeout, 30*time.Second)
	o.ReportWait = cmp.Or(o.ReportWait, 2*time.Second)
	o.ModeTime = cmp.Or(o.ModeTime, 5*time.Second)
	o.Interval = cmp.Or(o.Interval, 30*time.Second)
	o.ReconcileTime = cmp.Or(o.ReconcileTime, 10*time.Second)
	o.SandboxTime = cmp.Or(o.SandboxTime, time.Minute)
	o.ZtunnelTime = cmp.Or(o.ZtunnelTime, 10*time.Second)
	return &Node{
		Options: o, restored: make(chan struct{}), pods: map[string]*pod{},
		unsearched: map[cluster.Name]string{}, left: map[cluster.Name]string{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cluster.Name](minRetry, maxRetry)),
	}
}

// Changed tells the node that a pod was added, changed or deleted. An empty name means all pods of
// the namespace, and an empty namespace all pods. Changed does not block.
func (n *Node) Changed(namespace, name string) {
	if name != "" {
		n.queue.Add(cluster.Name{Namespace: namespace, Name: name})
		return
	}
	for _, item := range n.Pods.Pods() {
		if namespace == "" || item.Namespace == namespace {
			n.queue.Add(nameOf(item.Ref))
		}
	}
	// n.pods may contain deleted pods, which n.Pods no longer lists.
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		n.queue.Add(nameOf(p.ref))
	}
}

// Run reconciles the pods of the node until ctx is done. Enrolled pods then stay enrolled. If the
// pods of the node were listed, Add still enrolls pods after Run has returned, but only the next
// agent sets their annotation.
func (n *Node) Run(ctx context.Context) {
	defer n.queue.ShutDown()
	if !n.restore(ctx) {
		return
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() { n.runWorker(ctx) })
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

func (n *Node) runWorker(ctx context.Context) {
	for {
		name, shutdown := n.queue.Get()
		if shutdown || ctx.Err() != nil {
			return
		}
		n.reconcileQueued(ctx, name)
		n.queue.Done(name)
	}
}

// reconcileQueued reconciles a pod from the queue, and adds the pod again after an error or if
// reconcile requests this.
func (n *Node) reconcileQueued(ctx context.Context, name cluster.Name) {
	switch retryAfter, err := n.reconcile(ctx, name); {
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
