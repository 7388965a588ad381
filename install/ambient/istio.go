package ambient

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// istio-cni leaves its rules in the pods of a node when it is uninstalled. These rules treat
// packets as the rules of Sluice do, and stay in the pod until the pod leaves ambient mode.

// removeIstioRules removes the rules of istio-cni from a pod that leaves ambient mode. If they
// stayed, the pod could not connect to anything, because ztunnel no longer serves it. The caller
// holds the pod's lock. If ctx is done while the rules of other pods are read, removeIstioRules
// returns an error.
func (n *Node) removeIstioRules(ctx context.Context, p *pod) error {
	if p.ns == nil || n.IsHost(p.ns.ID()) {
		return nil
	}
	unlock, err := n.lockRules(ctx, false)
	if err != nil {
		return err
	}
	defer unlock()
	removed, err := compat.RemoveIstioObjects(p.ns, rules.IstioAmbientPolicy())
	if err = n.ignoreLegacyTooLarge(p, err); err != nil {
		return fmt.Errorf("remove the rules of istio-cni: %w", err)
	}
	if len(removed) > 0 {
		n.Log.Info("the rules of istio-cni were removed from a pod", podField(p.ref))
	}
	return nil
}

// isTakenOver reports whether istio-cni has replaced this agent and has rules in the pod. If some
// rules cannot be read, only the others count. The caller holds the pod's lock.
func (n *Node) isTakenOver(p *pod) bool {
	if !n.Ztunnel.IsReplaced() || p.ns == nil {
		return false
	}
	_ = n.RuleLock.Acquire(context.Background()) // never fails
	defer n.RuleLock.Release()
	found, err := compat.FindIstioObjects(p.ns, rules.IstioAmbientPolicy())
	if err != nil {
		n.Log.Warn("not all rules of a pod can be read to find the rules of istio-cni", podField(p.ref),
			zap.Error(err))
	}
	return len(found) > 0
}
