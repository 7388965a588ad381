package ambient

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// When the agent starts, restore passes the existing pods in ambient mode to ztunnel and to the
// node's rules, and then searches the other pods for rules of an earlier agent. It returns false if
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
	inAmbient, others := n.podsByMode(ctx)
	// The reconciliation searches again for the sandboxes that are not found now.
	found := n.sandboxes(ctx, inAmbient)
	reported := make([]ztunnel.Pod, len(inAmbient))
	addresses := make(map[string][]netip.Addr, len(inAmbient))
	for i, object := range inAmbient {
		m := object.Metadata
		reported[i] = ztunnel.Pod{
			UID: m.UID, Name: m.Name, Namespace: m.Namespace,
			ServiceAccount: object.Spec.ServiceAccountName,
		}
		addresses[m.UID] = object.Addresses()
		sb, ok := found[m.UID]
		if !ok {
			continue
		}
		ns, err := sb.Open()
		if err != nil {
			continue
		}
		defer func() { _ = ns.Close() }()
		reported[i].Netns = ns
		if len(addresses[m.UID]) == 0 {
			// If this fails, the reconciliation adds the pod's addresses to the node's rules.
			addresses[m.UID], _ = route.Addresses(ns)
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if err := n.Host.Replace(addresses); err != nil {
		n.Log.Warn("the node's rules for probes cannot be written yet", zap.Error(err))
	}
	n.Ztunnel.Restore(reported)
	close(n.restored)
	n.findLeftovers(ctx, others)
	return true
}

// podsByMode returns the pods of the node that should be in ambient mode, and the others that have
// a network namespace of their own. inAmbient includes pods whose mode or parameters are unknown,
// for example because of an invalid annotation: they may be enrolled.
func (n *Node) podsByMode(ctx context.Context) (inAmbient, others []*decide.Pod) {
	for _, item := range n.Pods.Pods() {
		if item.PodStatus.HasEnded() {
			continue
		}
		desired, err := n.desiredPod(ctx, item.Ref)
		switch {
		case desired.object == nil:
		case !errors.Is(err, errNotAmbient):
			inAmbient = append(inAmbient, desired.object)
		case !desired.object.Spec.HostNetwork:
			others = append(others, desired.object)
		}
	}
	return inAmbient, others
}
