package ambient

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// restore tells ztunnel and the node's rules about the pods that exist when the agent starts, and
// then searches the other pods for rules of an earlier agent. It reports whether that is complete.
func (n *Node) restore(ctx context.Context) bool {
	ticker := time.NewTicker(connectInterval)
	defer ticker.Stop()
	for !n.Pods.Synced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	all, others := n.running(ctx)
	search := make([]*decide.Pod, len(all))
	for i, desired := range all {
		search[i] = desired.object
	}
	found, _ := n.sandboxes(ctx, search) // pods that are not found are searched for again
	list := make([]ztunnel.Pod, len(all))
	addresses := make(map[string][]netip.Addr, len(all))
	for i, desired := range all {
		m := desired.object.Metadata
		list[i] = ztunnel.Pod{
			UID: m.UID, Name: m.Name, Namespace: m.Namespace,
			ServiceAccount: desired.object.Spec.ServiceAccountName,
		}
		addresses[m.UID] = desired.object.Addresses()
		sb, ok := found[m.UID]
		if !ok {
			continue
		}
		ns, err := sb.Open()
		if err != nil {
			continue
		}
		defer func() { _ = ns.Close() }()
		if list[i].Netns = ns; len(addresses[m.UID]) == 0 {
			addresses[m.UID], _ = route.Addresses(ns) // without them, the reconciliation adds the pod
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if err := n.Host.Replace(addresses); err != nil {
		n.Log.Warn("the node's rules for probes cannot be written yet", reason(err))
	}
	n.Ztunnel.Restore(list)
	close(n.restored)
	n.findLeftovers(ctx, others)
	return true
}

// running returns the pods of the node that should be in ambient mode and have not ended, and the
// others with a network namespace of their own. The former include those with wrong annotations,
// which may be enrolled.
func (n *Node) running(ctx context.Context) (all []desiredPod, others []*decide.Pod) {
	for _, item := range n.Pods.Pods() {
		if item.PodStatus.Over() {
			continue
		}
		desired, err := n.desired(ctx, item.Ref)
		switch {
		case desired.object == nil:
		case !errors.Is(err, errNotAmbient):
			all = append(all, desired)
		case !desired.object.Spec.HostNetwork:
			others = append(others, desired.object)
		}
	}
	return all, others
}
