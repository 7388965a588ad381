package ambient

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// restore passes the pods in ambient mode that exist when the agent starts to ztunnel and to the
// node's rules. It then searches the other pods for rules of an earlier agent. It returns false if
// ctx ends before the pods are passed.
func (n *Node) restore(ctx context.Context) bool {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for !n.Pods.Synced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	pods := n.podsByMode(ctx, n.ModeTime)
	// The reconciliation searches again for sandboxes that are not found now.
	found := n.sandboxes(ctx, pods.inAmbient)
	var reported []ztunnel.Pod
	addresses := make(map[string][]netip.Addr, len(pods.inAmbient))
	for _, object := range pods.inAmbient {
		p := reportedPod(object)
		addresses[p.UID] = object.Addresses()
		if ns := open(found, p.UID); ns != nil {
			defer func() { _ = ns.Close() }()
			p.Netns = ns
			if len(addresses[p.UID]) == 0 {
				// If this fails, the reconciliation adds the pod's addresses to the node's rules.
				addresses[p.UID], _ = route.Addresses(ns)
			}
		}
		reported = append(reported, p)
	}
	// Without a network namespace, ztunnel only keeps a pod that it serves already.
	for _, object := range pods.unknown {
		reported = append(reported, reportedPod(object))
	}
	if ctx.Err() != nil {
		return false
	}
	// The reconciliation removes pods from n.pods if they are deleted meanwhile, or should not be
	// in ambient mode.
	for _, p := range reported {
		n.pod(source.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID}, true)
	}
	if err := n.Host.Replace(addresses); err != nil {
		n.Log.Warn("the node's rules for probes cannot be written yet", zap.Error(err))
	}
	n.Ztunnel.Restore(reported)
	close(n.restored)
	n.findLeftovers(ctx, pods.others)
	return true
}

// reportedPod returns a pod for ztunnel, without its network namespace.
func reportedPod(o *decide.Pod) ztunnel.Pod {
	m := o.Metadata
	return ztunnel.Pod{
		UID: m.UID, Name: m.Name, Namespace: m.Namespace, ServiceAccount: o.Spec.ServiceAccountName,
	}
}

// open returns the network namespace of the pod with the UID, or nil if it is not found or cannot
// be opened.
func open(found map[string]sandbox.Sandbox, uid string) *netns.NS {
	sb, ok := found[uid]
	if !ok {
		return nil
	}
	ns, err := sb.Open()
	if err != nil {
		return nil
	}
	return ns
}

// nodePods are the pods of a node that have not ended.
type nodePods struct {
	// inAmbient contains the pods that should be in ambient mode, even if their parameters are
	// invalid. It also contains the pods of unknown mode whose annotation says that they are
	// enrolled.
	inAmbient []*decide.Pod
	// unknown contains the pods that may be in ambient mode, because their namespaces, or the pods
	// themselves, cannot be read. A pod that cannot be read has only its identity.
	unknown []*decide.Pod
	// others contains the pods that should not be in ambient mode, and have a network namespace of
	// their own.
	others []*decide.Pod
}

// podsByMode returns the pods of the node. It requests each namespace at most once, and no
// namespaces after the time limit.
func (n *Node) podsByMode(ctx context.Context, limit time.Duration) (pods nodePods) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	namespace := n.namespacesOnce(ctx)
	for _, item := range n.Pods.Pods() {
		if item.PodStatus.HasEnded() {
			continue
		}
		desired, err := n.desiredPodIn(ctx, item.Ref, namespace)
		switch o := desired.object; {
		case o == nil && (source.IsNotFound(err) || source.IsReplaced(err)):
			// The pod was deleted or replaced, and the cache will report this.
		case o == nil:
			n.Log.Warn("a pod cannot be read, and may be in ambient mode", podField(item.Ref),
				zap.Error(err))
			o = &decide.Pod{Metadata: decide.Metadata{
				Namespace: item.Namespace, Name: item.Name, UID: item.UID,
			}}
			pods.unknown = append(pods.unknown, o)
		case errors.Is(err, errNotAmbient):
			if !o.Spec.HostNetwork {
				pods.others = append(pods.others, o)
			}
		case err == nil, source.KindOf(err) == agent.KindParameters,
			o.Metadata.Annotations[annotationName] == annotationEnabled:
			pods.inAmbient = append(pods.inAmbient, o)
		default:
			pods.unknown = append(pods.unknown, o)
		}
	}
	return pods
}

// namespacesOnce returns a function that requests each namespace only once, even after an error.
func (n *Node) namespacesOnce(ctx context.Context) func(name string) (*decide.Namespace, error) {
	type result struct {
		namespace *decide.Namespace
		err       error
	}
	results := map[string]result{}
	return func(name string) (*decide.Namespace, error) {
		r, ok := results[name]
		if !ok {
			r.namespace, r.err = podcache.ReadNamespace(ctx, n.Pods, name)
			results[name] = r
		}
		return r.namespace, r.err
	}
}
