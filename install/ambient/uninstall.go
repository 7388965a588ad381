package ambient

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// uninstallTime limits the work on one pod in Uninstall.
const uninstallTime = 2 * time.Second

// Uninstall makes all pods of the node leave ambient mode, because no agent follows. Run must have
// ended. A failure does not end it; the error names all pods that are not complete. A pod that
// istio-cni has taken over only loses the rules of Sluice: it stays in ambient mode, and ztunnel
// serves it.
func (n *Node) Uninstall(ctx context.Context) error {
	n.mu.Lock()
	all := make([]*pod, 0, len(n.pods))
	for _, p := range n.pods {
		all = append(all, p)
	}
	n.mu.Unlock()
	var errs []error
	for _, p := range all {
		// The rules of all pods first: they matter most, and need nothing but the kernel.
		if err := n.uninstallRules(p); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.ref, err))
		}
	}
	for _, p := range all {
		if err := n.uninstallPod(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.ref, err))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) uninstallRules(p *pod) error {
	if !p.lock.try() {
		return errors.New("an ADD of the pod is running")
	}
	defer p.lock.release()
	return n.uninstall(p)
}

func (n *Node) uninstallPod(ctx context.Context, p *pod) error {
	ctx, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	if err := p.lock.acquire(ctx); err != nil {
		return err
	}
	defer p.lock.release()
	if n.takenOver(p) {
		n.forget(p)
		return nil
	}
	err := n.leave(ctx, p, false)
	item, ok := n.Pods.Item(p.ref.Namespace, p.ref.Name)
	if !ok || item.UID != p.ref.UID {
		return err
	}
	desired, wantedErr := n.desired(ctx, item.Ref)
	if desired.object == nil {
		return errors.Join(err, wantedErr)
	}
	p.annotates, p.annotation, p.patchedVersion = true, "", ""
	return errors.Join(err, n.annotate(ctx, p, item, desired.object))
}
