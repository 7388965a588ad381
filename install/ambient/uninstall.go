package ambient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// The time limits of the steps of Uninstall, for all pods together: the kubelet kills an agent that
// needs longer than its termination grace period.
const (
	searchTime     = 2 * time.Second // to find pods that were not reconciled yet
	leaveTime      = 2 * time.Second // to wait for running ADDs and for ztunnel
	annotationTime = 2 * time.Second // to remove annotations
)

// UninstallTime is the maximum time that [Node.Uninstall] waits for ADDs, ztunnel and the API
// server. It also needs time for removing rules.
const UninstallTime = searchTime + leaveTime + annotationTime

// errUninstalled is the error of an ADD after [Node.Uninstall].
var errUninstalled = source.WithKind(source.Unavailable,
	errors.New("the agent is being uninstalled"))

// Uninstall makes all pods of the node leave ambient mode, including pods that an earlier agent has
// enrolled. It is for a node that gets no other agent: afterwards, Add fails. Run must have ended.
// If a pod cannot leave, Uninstall continues with the others; the error names all such pods. A pod
// that istio-cni has taken over only loses the rules of Sluice: it stays in ambient mode, and
// ztunnel serves it.
func (n *Node) Uninstall(ctx context.Context) error {
	errs := []error{n.findRemaining(ctx)}
	n.uninstalled.Store(true)
	n.mu.Lock()
	pods := slices.SortedFunc(maps.Values(n.pods), func(a, b *pod) int {
		return strings.Compare(a.ref.String(), b.ref.String())
	})
	n.mu.Unlock()
	// The rules of all pods are removed first: this is the most important step, and needs only the
	// kernel.
	for _, p := range pods {
		if err := n.tryUninstallRules(p); err != nil {
			errs = append(errs, fmt.Errorf("pod %s: %w", p.ref, err))
		}
	}
	errs = append(errs, forEach(ctx, leaveTime, pods, n.uninstallPod)...)
	errs = append(errs, forEach(ctx, annotationTime, pods, n.removeAnnotation)...)
	return errors.Join(errs...)
}

// forEach calls f for each pod, for at most workers pods at a time, with a context that ends after
// the timeout. It returns the errors.
func forEach(
	ctx context.Context, timeout time.Duration, pods []*pod, f func(context.Context, *pod) error,
) []error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	errs := make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, p := range pods {
		group.Go(func() error {
			if err := f(ctx, p); err != nil {
				errs[i] = fmt.Errorf("pod %s: %w", p.ref, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return errs
}

// findRemaining adds the pods that this agent has not reconciled yet and that have rules of ambient
// mode to n.pods. The error names the pods that an earlier agent has enrolled, and whose network
// namespaces cannot be searched.
func (n *Node) findRemaining(ctx context.Context) error {
	if !n.Pods.Synced() {
		return errors.New("rules may remain in pods, because the node's pods have not been listed")
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	var remaining []*decide.Pod
	pods := n.podsByMode(ctx, searchTime)
	for _, o := range slices.Concat(pods.inAmbient, pods.unknown, pods.others) {
		if p := n.pod(refOf(o), false); p == nil || !p.isLocated() {
			remaining = append(remaining, o)
		}
	}
	n.findLeftovers(ctx, remaining)
	var errs []error
	for _, o := range remaining {
		ref := refOf(o)
		if o.Metadata.Annotations[annotationName] == annotationEnabled && n.isUnsearched(ref) {
			errs = append(errs, fmt.Errorf("pod %s: its rules may remain, because its network "+
				"namespace is not found or cannot be read", ref))
		}
	}
	return errors.Join(errs...)
}

// isLocated reports whether the network namespace of a pod is known.
func (p *pod) isLocated() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ns != nil
}

// tryUninstallRules removes the rules of a pod, unless the pod's lock is held, for example by an
// ADD. uninstallPod waits for the lock.
func (n *Node) tryUninstallRules(p *pod) error {
	if !p.lock.TryAcquire(1) {
		return nil
	}
	defer p.lock.Release(1)
	return n.uninstallRules(context.Background(), p)
}

// lockAfterADD acquires the lock of a pod, which an ADD may hold. If the lock is not held, it
// succeeds even if ctx is done.
func (p *pod) lockAfterADD(ctx context.Context) error {
	return acquire(ctx, p.lock, "the end of the pod's ADD")
}

// uninstallPod makes a pod leave ambient mode, unless istio-cni has taken it over. It leaves the
// pod's annotation to removeAnnotation.
func (n *Node) uninstallPod(ctx context.Context, p *pod) error {
	if err := p.lockAfterADD(ctx); err != nil {
		return err
	}
	defer p.lock.Release(1)
	if n.isTakenOver(p) {
		n.forget(p)
		return nil
	}
	p.shouldAnnotate, p.annotation, p.patchedVersion = true, "", ""
	// The rules are removed even if reading the rules of other pods takes longer than ctx permits.
	if err := n.removeAllRules(context.WithoutCancel(ctx), p); err != nil {
		return err
	}
	return n.leave(ctx, p, true)
}

// removeAnnotation removes the annotation of a pod that uninstallPod has made leave ambient mode.
func (n *Node) removeAnnotation(ctx context.Context, p *pod) error {
	if err := p.lockAfterADD(ctx); err != nil {
		return err
	}
	defer p.lock.Release(1)
	item, ok := n.Pods.Item(p.ref.Namespace, p.ref.Name)
	if !ok || item.UID != p.ref.UID || !p.shouldAnnotate || p.annotation != "" {
		return nil
	}
	desired, err := n.desiredPod(ctx, item.Ref)
	if desired.object == nil {
		return err
	}
	return n.annotate(ctx, p, item, desired.object)
}
