package ambient

import (
	"context"
	"errors"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// An agent that ends between the first and the last step of an enrolment leaves rules in a pod
// without an annotation. If the pod should not be in ambient mode any more when the next agent
// starts, only the rules in the kernel say that it was. Therefore each agent searches the pods
// outside ambient mode once.

// findLeftovers searches the network namespaces of pods outside ambient mode for rules of ambient
// mode. Pods with such rules become known, so that they leave. Pods that are not found are searched
// again by the next reconciliation.
func (n *Node) findLeftovers(ctx context.Context, objects []*decide.Pod) {
	n.mu.Lock()
	for _, o := range objects {
		n.unsearched[nameOf(o)] = o.Metadata.UID
	}
	n.mu.Unlock()
	found, _ := n.sandboxes(ctx, objects)
	for _, o := range objects {
		m := o.Metadata
		sb, ok := found[m.UID]
		if !ok {
			continue
		}
		ref := source.Ref{Namespace: m.Namespace, Name: m.Name, UID: m.UID}
		if err := n.findLeftover(ref, sb); err != nil {
			n.Log.Debug("a pod is searched for rules of an earlier agent again", pointer(ref), reason(err))
			continue
		}
		n.markSearched(nameOf(o))
	}
}

// findLeftover searches one pod.
func (n *Node) findLeftover(ref source.Ref, sb sandbox.Sandbox) error {
	ns, err := sb.Open()
	if err != nil {
		return err
	}
	has, err := hasRules(ns)
	if err != nil || !has || n.IsHost(ns.ID()) {
		return errors.Join(err, ns.Close())
	}
	p := n.pod(ref, true)
	if !p.lock.try() { // it is worked on, and known
		return ns.Close()
	}
	defer p.lock.release()
	p.setNS(ns)
	return nil
}

// hasRules reports whether a namespace has rules of ambient mode.
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

// isUnsearched reports whether a pod must be searched.
func (n *Node) isUnsearched(ref source.Ref) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, ok := n.unsearched[podName{ref.Namespace, ref.Name}]
	return ok && uid == ref.UID
}

// markSearched reports that a pod was searched, or was deleted.
func (n *Node) markSearched(name podName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.unsearched, name)
}

func nameOf(o *decide.Pod) podName { return podName{o.Metadata.Namespace, o.Metadata.Name} }
