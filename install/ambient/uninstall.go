package ambient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// uninstallTime is the time limit of uninstallPod.
const uninstallTime = 2 * time.Second

// Uninstall makes all pods of the node leave ambient mode. It is for a node that gets no other
// agent. Run must have ended. If a pod cannot leave, Uninstall continues with the others; the error
// names all such pods. A pod that istio-cni has taken over only loses the rules of Sluice: it stays
// in ambient mode, and ztunnel serves it.
func (n *Node) Uninstall(ctx context.Context) error {
	n.mu.Lock()
	pods := slices.Collect(maps.Values(n.pods))
	n.mu.Unlock()
	var errs []error
	// The rules of all pods are removed first: this is the most important step, and needs only the
	// kernel.
	for _, p := range pods {
		if err := n.tryUninstallRules(p); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.ref, err))
		}
	}
	for _, p := range pods {
		if err := n.uninstallPod(ctx, p); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.ref, err))
		}
	}
	return errors.Join(errs...)
}

// tryUninstallRules removes the rules of a pod. It returns an error if the pod's lock is held.
func (n *Node) tryUninstallRules(p *pod) error {
	if !p.lock.TryAcquire(1) {
		return errors.New("an ADD of the pod is running")
	}
	defer p.lock.Release(1)
	return n.uninstallRules(p)
}

// uninstallPod makes a pod leave ambient mode, unless istio-cni has taken it over.
func (n *Node) uninstallPod(ctx context.Context, p *pod) error {
	ctx, cancel := context.WithTimeout(ctx, uninstallTime)
	defer cancel()
	if err := p.lock.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for the end of the pod's ADD: %w", err)
	}
	defer p.lock.Release(1)
	if n.isTakenOver(p) {
		n.forget(p)
		return nil
	}
	err := n.leave(ctx, p, false)
	item, ok := n.Pods.Item(p.ref.Namespace, p.ref.Name)
	if !ok || item.UID != p.ref.UID {
		return err
	}
	desired, desiredErr := n.desiredPod(ctx, item.Ref)
	if desired.object == nil {
		return errors.Join(err, desiredErr)
	}
	p.shouldAnnotate, p.annotation, p.patchedVersion = true, "", ""
	return errors.Join(err, n.annotate(ctx, p, item, desired.object))
}
