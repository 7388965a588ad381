package ambient

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An agent that exits between the first and the last step of an enrollment leaves rules in a pod
// without an annotation. If the pod should not be in ambient mode when the next agent starts, only
// the rules in the kernel show that it must leave ambient mode. Therefore each agent searches the
// pods outside ambient mode once.

// findLeftovers searches the network namespaces of pods outside ambient mode for rules of ambient
// mode. It adds pods with such rules to n.pods, so that they leave ambient mode. Pods whose network
// namespaces were not found or could not be read are searched again in their next reconciliation.
func (n *Node) findLeftovers(ctx context.Context, objects []*decide.Pod) {
	n.markUnsearched(objects...)
	found := n.sandboxes(ctx, objects)
	for _, o := range objects {
		ref := refOf(o)
		sb, ok := found[ref.UID]
		if !ok {
			continue
		}
		if err := n.findLeftover(ctx, ref, sb); err != nil {
			n.Log.Debug("a pod cannot be searched for rules of an earlier agent yet", podField(ref),
				zap.Error(err))
			continue
		}
		n.markSearched(nameOf(ref))
	}
}

// findLeftover adds the pod to n.pods if its sandbox has rules of ambient mode and is not the
// node's network namespace. If the tables of iptables-legacy are too large to read, only the rules
// in nf_tables count.
func (n *Node) findLeftover(ctx context.Context, ref source.Ref, sb sandbox.Sandbox) error {
	ns, err := sb.Open()
	if err != nil {
		return err
	}
	unlock, err := n.lockRules(ctx, false)
	if err != nil {
		return errors.Join(err, ns.Close())
	}
	isAmbient, err := hasRules(ns)
	unlock()
	if err = withoutLegacyTooLarge(err); err != nil || !isAmbient || n.IsHost(ns.ID()) {
		return errors.Join(err, ns.Close())
	}
	p := n.pod(ref, true)
	if !p.lock.TryAcquire(1) { // the pod is in n.pods, and is being reconciled
		return ns.Close()
	}
	defer p.lock.Release(1)
	p.setNS(ns)
	return nil
}

// withoutLegacyTooLarge returns err, or nil if it means that the tables of iptables-legacy are too
// large to read, although the rules in nf_tables could be read.
func withoutLegacyTooLarge(err error) error {
	if compat.IsLegacyTooLarge(compat.BackendNFT, err) {
		return nil
	}
	return err
}

// hasRules reports whether a network namespace has rules of ambient mode.
func hasRules(ns *netns.NS) (bool, error) {
	for _, b := range compat.Backends() {
		rs, err := b.Read(ns)
		if err != nil && !compat.IsNotSupported(err) {
			return false, err
		}
		if rs.RedirectsToZtunnel() {
			return true, nil
		}
	}
	return false, nil
}

// hasSidecarRules reports whether the network namespace of a pod may have rules for a sidecar:
// Sluice's, or Istio's if the pod is injected. If the tables of iptables-legacy are too large to
// read, only the rules in nf_tables count.
func (n *Node) hasSidecarRules(
	ctx context.Context, ns *netns.NS, object *decide.Pod,
) (bool, error) {
	unlock, err := n.lockRules(ctx, false)
	if err != nil {
		return false, err
	}
	defer unlock()
	switch isAmbient, err := hasRules(ns); {
	case withoutLegacyTooLarge(err) != nil, isAmbient:
		return false, err
	case object.IsInjected():
		return true, nil
	}
	installed, err := compat.InstalledBackends(ns)
	return len(installed) > 0, withoutLegacyTooLarge(err)
}

// isUnsearched reports whether a pod must still be searched for leftovers.
func (n *Node) isUnsearched(ref source.Ref) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, ok := n.unsearched[nameOf(ref)]
	return ok && uid == ref.UID
}

// markUnsearched records that pods must be searched for leftovers.
func (n *Node) markUnsearched(objects ...*decide.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range objects {
		n.unsearched[nameOf(refOf(o))] = o.Metadata.UID
	}
}

// markSearched records that a pod was searched for leftovers, or was deleted.
func (n *Node) markSearched(name cluster.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.unsearched, name)
}

func refOf(o *decide.Pod) source.Ref {
	return source.Ref{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID}
}

func nameOf(ref source.Ref) cluster.Name {
	return cluster.Name{Namespace: ref.Namespace, Name: ref.Name}
}
