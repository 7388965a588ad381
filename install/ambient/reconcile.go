package ambient

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// The annotation that istiod reads, and its values.
const (
	annotationName    = "ambient.istio.io/redirection"
	annotationEnabled = "enabled"
	annotationPending = "pending"
)

// reconcile brings the pod with the name to its desired state, and makes deleted pods with the name
// leave ambient mode. If retryAfter is not zero, the pod must be reconciled again after this time
// even if it does not change.
func (n *Node) reconcile(
	runCtx context.Context, name cluster.Name,
) (retryAfter time.Duration, err error) {
	ctx, cancel := context.WithTimeout(runCtx, n.ReconcileTime)
	defer cancel()
	item, exists := n.Pods.Item(name.Namespace, name.Name)
	if !exists {
		n.markSearched(name)
		n.clearLeft(name)
	}
	// If no pod with the name exists, item.UID is empty: all known pods with the name leave.
	retryAfter, err = n.leaveDeleted(ctx, name, item.UID)
	if !exists || retryAfter > 0 || err != nil {
		return retryAfter, err
	}
	desired, err := n.desiredPod(ctx, item.Ref)
	if desired.object != nil &&
		desired.object.Metadata.Annotations[annotationName] != annotationEnabled {
		n.clearLeft(name)
	}
	ended := item.PodStatus.HasEnded()
	switch {
	case source.IsNotFound(err), source.IsReplaced(err):
		return 0, nil // the pod was deleted or replaced, and the cache will report this
	case errors.Is(err, errNotAmbient), ended && desired.object != nil:
		return n.leaveUnwanted(ctx, item, desired.object, ended)
	}
	if err != nil && source.KindOf(err) != agent.KindParameters {
		return 0, err // it is unknown whether the pod should be in ambient mode
	}
	p := n.pod(item.Ref, true)
	if !p.lock.TryAcquire(1) {
		return busyDelay, nil
	}
	defer p.lock.Release(1)
	if err == nil {
		retryAfter, err = n.enrollRunning(ctx, p, desired, item.PodStatus.Deleted)
	} else {
		p.err = err // the rules of an enrolled pod stay as they are
	}
	// ctx may be done: the requests that report the result have separate time limits.
	isDisconnected := errors.Is(err, ztunnel.ErrNotConnected)
	if !isDisconnected {
		p.disconnectedSince = time.Time{}
	}
	// A missing connection to ztunnel or a missing sandbox is reported only if it lasts.
	switch {
	case isDisconnected:
		if timeSince(&p.disconnectedSince) >= n.ZtunnelTime {
			n.report(runCtx, p, err)
		}
	case err == nil || p.missingSince.IsZero():
		n.report(runCtx, p, err)
	case !item.PodStatus.Deleted && time.Since(p.missingSince) >= n.SandboxTime:
		p.err = err
		n.report(runCtx, p, err)
	}
	return retryAfter, errors.Join(err, n.annotate(runCtx, p, item, desired.object))
}

// leaveDeleted makes the pods with the name, except the current pod, leave ambient mode. retryAfter
// has the same meaning as in reconcile.
func (n *Node) leaveDeleted(
	ctx context.Context, name cluster.Name, currentUID string,
) (retryAfter time.Duration, err error) {
	isBusy := false
	for _, p := range n.otherPods(name, currentUID) {
		if n.isUnlisted(p) {
			_, _, podErr := n.Pods.Pod(ctx, p.ref)
			if podErr == nil {
				retryAfter = startDelay // the cache will report the pod
				continue
			}
			if !source.IsNotFound(podErr) && !source.IsReplaced(podErr) {
				err = errors.Join(err, podErr)
				continue
			}
		}
		if !p.lock.TryAcquire(1) {
			isBusy = true
			continue
		}
		if leaveErr := n.leave(ctx, p, true); leaveErr != nil {
			err = errors.Join(err, n.recordLeaveError(p, leaveErr))
		}
		p.lock.Release(1)
	}
	if isBusy {
		retryAfter = busyDelay
	}
	return retryAfter, err
}

// enrollRunning enrolls a running pod, unless it is enrolled already with the desired parameters
// and addresses, and ztunnel has not refused it. deleted means that the pod is being deleted. retryAfter has the same meaning as in
// reconcile.
func (n *Node) enrollRunning(
	ctx context.Context, p *pod, desired desiredPod, deleted bool,
) (retryAfter time.Duration, err error) {
	addresses := desired.object.Addresses()
	found, missing := n.sandboxOf(ctx, desired.object)
	switch {
	case found == nil && p.ns == nil:
		// A pod that is starting has no sandbox yet, and is enrolled by its ADD.
		if len(addresses) == 0 {
			return 0, nil
		}
		timeSince(&p.missingSince) // sets missingSince
		return 0, source.WithKind(agent.KindRules,
			errors.Join(errors.New("its network namespace is not found"), missing))
	case found != nil && (p.ns == nil || p.ns.ID() != found.ID):
		// The processes of a pod may exist before its ADD is called.
		if found.Source == sandbox.Proc && len(addresses) == 0 {
			return startDelay, nil
		}
		ns, err := found.Open()
		if err != nil {
			return 0, source.WithKind(agent.KindRules, err)
		}
		// If the runtime replaces the sandbox, the status has the addresses of the earlier one
		// until ADD has ended.
		if found.Source == sandbox.Proc && !hasAny(ns, addresses) &&
			timeSince(&p.missingSince) < n.SandboxTime {
			return startDelay, ns.Close()
		}
		if n.IsHost(ns.ID()) {
			_ = ns.Close()
			return 0, source.WithKind(agent.KindRules,
				errors.New("its network namespace is the node's"))
		}
		p.setNS(ns)
		if !deleted {
			defer n.Found(*found) // after the enrollment, which must not wait for it
		}
	}
	p.missingSince = time.Time{}
	if p.enrolled && reflect.DeepEqual(p.ambient, desired.ambient) &&
		(len(addresses) == 0 || sameAddresses(addresses, p.addresses)) &&
		n.Ztunnel.Refused(p.ref.UID) == nil {
		return 0, nil
	}
	wasEnrolled := p.enrolled
	// If the pod has just left ambient mode, it still has the annotation, and no rules.
	rulesExpected := p.backend == "" && !p.isNSReplaced && !n.hasLeft(p.ref) &&
		desired.object.Metadata.Annotations[annotationName] == annotationEnabled
	_, err = n.enroll(ctx, p, desired, addresses, false, rulesExpected)
	if !wasEnrolled {
		n.EnrollAttempted(err)
	}
	if err == nil {
		n.Log.Info("a running pod is in ambient mode", podField(p.ref))
	}
	return 0, err
}

// hasAny reports whether a network namespace has any of the addresses. It returns true if the
// addresses of the namespace cannot be read.
func hasAny(ns *netns.NS, addresses []netip.Addr) bool {
	found, err := route.Addresses(ns)
	return err != nil || slices.ContainsFunc(normalize(found), func(a netip.Addr) bool {
		return slices.Contains(normalize(addresses), a)
	})
}

// sandboxOf returns the sandbox of a pod, or nil and the reason.
func (n *Node) sandboxOf(ctx context.Context, object *decide.Pod) (*sandbox.Sandbox, error) {
	p := sandbox.PodOf(object)
	found, missing := n.Find(ctx, []sandbox.Pod{p})
	if sb, ok := found[p]; ok {
		return &sb, nil
	}
	return nil, missing[p].Err
}

// sandboxes returns the sandboxes of pods, by the pods' UIDs in the API server. A static pod has
// another UID in the kubelet; see [sandbox.Pod].
func (n *Node) sandboxes(ctx context.Context, objects []*decide.Pod) map[string]sandbox.Sandbox {
	pods := make([]sandbox.Pod, len(objects))
	for i, o := range objects {
		pods[i] = sandbox.PodOf(o)
	}
	found, _ := n.Find(ctx, pods)
	byUID := make(map[string]sandbox.Sandbox, len(found))
	for i, o := range objects {
		if sb, ok := found[pods[i]]; ok {
			byUID[o.Metadata.UID] = sb
		}
	}
	return byUID
}

// sameAddresses reports whether normalize returns the same addresses for two lists.
func sameAddresses(a, b []netip.Addr) bool { return slices.Equal(normalize(a), normalize(b)) }

// normalize returns the addresses that [decide.GlobalAddresses] keeps, sorted and without
// duplicates.
func normalize(addresses []netip.Addr) []netip.Addr {
	global := slices.Values(decide.GlobalAddresses(addresses))
	return slices.Compact(slices.SortedFunc(global, netip.Addr.Compare))
}

// leaveUnwanted makes a pod leave ambient mode because it should not be in this mode or has ended.
func (n *Node) leaveUnwanted(
	ctx context.Context, item podcache.Item, object *decide.Pod, ended bool,
) (retryAfter time.Duration, err error) {
	_, annotated := object.Metadata.Annotations[annotationName]
	if !annotated && !ended && n.isUnsearched(item.Ref) {
		n.findLeftovers(ctx, []*decide.Pod{object})
	}
	p := n.pod(item.Ref, annotated)
	if p == nil {
		return 0, nil
	}
	if !p.lock.TryAcquire(1) {
		return busyDelay, nil
	}
	defer p.lock.Release(1)
	if p.ns == nil && !ended { // an earlier agent or istio-cni may have enrolled the pod
		switch sb, _ := n.sandboxOf(ctx, object); {
		case sb != nil:
			if err := n.openUnwanted(ctx, p, sb, object); err != nil {
				return 0, n.recordLeaveError(p, err)
			}
		case !object.Spec.HostNetwork:
			// The pod's rules are removed when a later reconciliation finds its network namespace.
			n.markUnsearched(object)
		}
	}
	if err := n.leave(ctx, p, ended); err != nil {
		return 0, n.recordLeaveError(p, err)
	}
	if annotated {
		n.markLeft(p.ref)
	}
	p.shouldAnnotate, p.annotation = true, ""
	if err := n.annotate(ctx, p, item, object); err != nil {
		// leave has removed the pod from n.pods; it is added again, so that the next reconciliation
		// removes its annotation.
		n.restorePod(p)
		return 0, err
	}
	return 0, nil
}

// markLeft records that the node has removed the rules of a pod, because the pod has left ambient
// mode.
func (n *Node) markLeft(ref source.Ref) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left[nameOf(ref)] = ref.UID
}

// hasLeft reports whether the node has removed the rules of a pod and the pod may still have the
// annotation "enabled". Missing rules are then no difference.
func (n *Node) hasLeft(ref source.Ref) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	uid, ok := n.left[nameOf(ref)]
	return ok && uid == ref.UID
}

// clearLeft records that a pod no longer has the annotation "enabled", or was deleted.
func (n *Node) clearLeft(name cluster.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.left, name)
}

// recordLeaveError records and logs why a pod cannot leave ambient mode now, and returns err.
func (n *Node) recordLeaveError(p *pod, err error) error {
	p.err = err
	n.Log.Warn("a pod cannot leave ambient mode yet", podField(p.ref), zap.Error(err))
	return err
}

// openUnwanted sets the network namespace of a pod that should not be in ambient mode, unless the
// namespace has the rules of a sidecar: a user can add the annotation to any pod. The caller holds
// the pod's lock.
func (n *Node) openUnwanted(
	ctx context.Context, p *pod, sb *sandbox.Sandbox, object *decide.Pod,
) error {
	ns, err := sb.Open()
	if err != nil {
		return err
	}
	if isSidecar, err := n.hasSidecarRules(ctx, ns, object); isSidecar || err != nil {
		return errors.Join(err, ns.Close())
	}
	p.setNS(ns)
	return nil
}

// leave undoes enroll, removes the rules of istio-cni, and forgets the pod if all this succeeds. If
// ended is set, the pod has ended or was deleted; leave then removes no rules. Usually the pod's
// network namespace no longer exists. If the deletion was forced, it may exist; the rules then
// refuse connections that ztunnel no longer serves.
func (n *Node) leave(ctx context.Context, p *pod, ended bool) error {
	if !ended {
		if err := n.removeAllRules(ctx, p); err != nil {
			return err
		}
	}
	if err := n.Ztunnel.Remove(ctx, p.ref.UID); err != nil {
		return err
	}
	if err := n.Host.Remove(p.ref.UID); err != nil {
		return err
	}
	n.forget(p)
	return nil
}

// removeAllRules removes the rules of Sluice and of istio-cni. The caller holds the pod's lock.
func (n *Node) removeAllRules(ctx context.Context, p *pod) error {
	if err := n.uninstallRules(ctx, p); err != nil {
		return err
	}
	return n.removeIstioRules(ctx, p)
}

// annotate sets the annotation of a pod to p.annotation, or removes the annotation if p.annotation
// is empty. It does nothing if p.shouldAnnotate is not set, if the pod has this value already, or
// if the cache has not received the pod's last patch yet.
func (n *Node) annotate(
	ctx context.Context, p *pod, item podcache.Item, object *decide.Pod,
) error {
	value, isAnnotated := object.Metadata.Annotations[annotationName]
	if !p.shouldAnnotate || isAnnotated == (p.annotation != "") && value == p.annotation ||
		p.patchedVersion == item.ResourceVersion {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var newValue *string
	if p.annotation != "" {
		newValue = &p.annotation
	}
	err := n.Cluster.AnnotatePod(ctx, nameOf(item.Ref), item.UID, annotationName, newValue)
	// NotFound and Conflict mean that the pod was deleted or replaced; the cache will report this.
	if err != nil && !cluster.IsNotFound(err) && !cluster.IsConflict(err) {
		return err
	}
	p.patchedVersion = item.ResourceVersion
	return nil
}
