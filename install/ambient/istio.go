package ambient

import (
	"fmt"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// istio-cni leaves its rules in the pods of a node when it is uninstalled. They treat packets as
// the rules of Sluice do, and stay beside them until the pod leaves ambient mode.

// removeIstio removes the rules of istio-cni from a pod that leaves ambient mode, whose lock the
// caller holds. Without ztunnel they would keep the pod from connecting to anything.
func (n *Node) removeIstio(p *pod) error {
	if p.ns == nil || n.IsHost(p.ns.ID()) {
		return nil
	}
	removed, err := compat.RemoveIstioObjects(p.ns, rules.IstioAmbientPolicy())
	if err != nil {
		return fmt.Errorf("the rules of istio-cni: %w", err)
	}
	if len(removed) > 0 {
		n.Log.Info("removed the rules of istio-cni from a pod", pointer(p.ref))
	}
	return nil
}

// takenOver reports whether istio-cni has replaced this agent and has rules in the pod, whose lock
// the caller holds.
func (n *Node) takenOver(p *pod) bool {
	if !n.Ztunnel.IsReplaced() || p.ns == nil {
		return false
	}
	found, err := compat.FindIstioObjects(p.ns, rules.IstioAmbientPolicy())
	if err != nil {
		n.Log.Warn("whether istio-cni has rules in a pod is not known", pointer(p.ref), reason(err))
	}
	return len(found) > 0
}
