package ambient

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// A State is the state of a pod in ambient mode.
type State string

// The states.
const (
	// Enrolled: the rules are in the kernel, ztunnel has acknowledged the pod, a ztunnel that
	// connected later has not refused it, and the node's rules contain its addresses.
	Enrolled State = "enrolled"
	// Pending: at least one of these conditions is not met.
	Pending State = "pending"
)

// States returns all states.
func States() []State { return []State{Enrolled, Pending} }

// A pod is a pod that is, or may be, in ambient mode.
type pod struct {
	ref source.Ref
	// isUnlisted is set from the pod's ADD until the cache reports the pod. While it is set, the
	// pod may exist although the cache does not contain it. Node.mu protects it.
	isUnlisted bool
	// lock protects the fields below; rulesLock and mu also protect some of them. lock is held
	// while the pod is reconciled or enrolled, even while ztunnel does not reply. It is a
	// semaphore, because the wait for it must respect a deadline.
	lock *semaphore.Weighted

	// rulesLock is held while the rules in ns are read or written. It is a semaphore for the same
	// reason as lock: an audit holds it even while it waits for the reads of other pods. Each
	// network namespace has its own rulesLock, so that setNS does not wait. Changing ambient,
	// backend or repaired requires both lock and rulesLock, but setNS needs only lock, and
	// TakeRepaired of [Node.Rules] only rulesLock. Reading them requires lock, or rulesLock while
	// isCurrent returns true.
	rulesLock *semaphore.Weighted
	// mu protects ns and rulesLock, which are changed only while lock is held.
	mu sync.Mutex
	// ns is the network namespace; nil if it is unknown.
	ns *netns.NS
	// isNSReplaced is set if ns has replaced an earlier network namespace. Missing rules are then
	// no difference: the new sandbox was created without an ADD of Sluice.
	isNSReplaced bool
	// missingSince is the time of the first of successive searches that found no network namespace
	// with the addresses of the running pod; zero if the last search found one.
	missingSince time.Time
	// disconnectedSince is the time of the first of successive attempts to enroll the running pod
	// that failed because no ztunnel was connected; zero if the last attempt had another result.
	disconnectedSince time.Time
	// ambient contains the parameters of the installed rules.
	ambient rules.Ambient
	// backend contains the installed rules; empty if none are known to be installed.
	backend compat.BackendName
	// repaired contains the repaired differences until TakeRepaired returns them; nil for none.
	repaired *compat.Comparison

	addresses []netip.Addr // in the node's rules
	enrolled  bool
	// awaitsZtunnel is set if ztunnel has not acknowledged the pod since this agent changed the
	// pod's rules.
	awaitsZtunnel bool
	err           error // of the last attempt to enroll the pod

	// annotation is the desired value of the annotation; empty if the pod should not have it.
	annotation string
	// shouldAnnotate is set if a different annotation of the pod should be changed to annotation.
	shouldAnnotate bool
	// patchedVersion is the resourceVersion before the last patch. While the object still has this
	// version, the event of the patch has not arrived.
	patchedVersion string
	reportedKind   string // kind of the last reported error; empty after a success
	// isEventUnsent is set if the event about the last reported error could not be sent.
	isEventUnsent bool
}

// pod returns the pod with the UID of ref. If there is none, pod creates it if create is set, and
// otherwise returns nil.
func (n *Node) pod(ref source.Ref, create bool) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[ref.UID]
	if p == nil && create {
		p = &pod{
			ref: ref, lock: semaphore.NewWeighted(1), rulesLock: semaphore.NewWeighted(1),
		}
		n.pods[ref.UID] = p
	}
	return p
}

// lockForADD returns the pod with the UID of ref after acquiring its lock. If there is none,
// lockForADD creates it.
func (n *Node) lockForADD(ctx context.Context, ref source.Ref) (*pod, error) {
	item, _ := n.Pods.Item(ref.Namespace, ref.Name)
	for {
		p := n.pod(ref, true)
		if err := p.lock.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		if n.markIfKnown(p, item.UID != ref.UID) {
			return p, nil
		}
		p.lock.Release(1) // meanwhile the pod has left ambient mode
	}
}

// markIfKnown reports whether a pod is in n.pods. If it is, and unlisted is set, markIfKnown marks
// it as unlisted.
func (n *Node) markIfKnown(p *pod, unlisted bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[p.ref.UID] != p {
		return false
	}
	p.isUnlisted = p.isUnlisted || unlisted
	return true
}

// isUnlisted reports whether the cache has not reported a pod since its ADD.
func (n *Node) isUnlisted(p *pod) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return p.isUnlisted
}

// restorePod adds a forgotten pod to n.pods again, unless an ADD has created the pod anew.
func (n *Node) restorePod(p *pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[p.ref.UID] == nil {
		n.pods[p.ref.UID] = p
	}
}

// forget closes the network namespace of a pod and removes the pod from n.pods. The caller holds
// the pod's lock.
func (n *Node) forget(p *pod) {
	p.setNS(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[p.ref.UID] == p {
		delete(n.pods, p.ref.UID)
	}
}

// otherPods marks the pod with currentUID as listed, and returns the other pods with the name.
func (n *Node) otherPods(name cluster.Name, currentUID string) []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var others []*pod
	for _, p := range n.pods {
		switch {
		case p.ref.Namespace != name.Namespace || p.ref.Name != name.Name:
		case p.ref.UID == currentUID:
			p.isUnlisted = false
		default:
			others = append(others, p)
		}
	}
	return others
}

// acquire acquires a lock of a pod. If the lock is not held, it succeeds even if ctx is done. event
// describes the release of the lock in the error.
func acquire(ctx context.Context, lock *semaphore.Weighted, event string) error {
	if lock.TryAcquire(1) {
		return nil
	}
	if err := lock.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("wait for %s: %w", event, err)
	}
	return nil
}

// acquireRules acquires rulesLock and returns it.
func (p *pod) acquireRules(ctx context.Context) (*semaphore.Weighted, error) {
	p.mu.Lock()
	lock := p.rulesLock
	p.mu.Unlock()
	return lock, acquire(ctx, lock, "the end of other work on the pod's rules")
}

// isCurrent reports whether the network namespace has not been replaced since acquireRules returned
// the lock. The caller holds mu.
func (p *pod) isCurrent(lock *semaphore.Weighted) bool { return p.rulesLock == lock }

// setNS replaces the network namespace and closes the previous one. The pod is not enrolled in the
// new one. The caller holds the pod's lock.
func (p *pod) setNS(ns *netns.NS) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ns == ns {
		return
	}
	p.rulesLock = semaphore.NewWeighted(1)
	if p.isNSReplaced = p.ns != nil; p.isNSReplaced {
		_ = p.ns.Close()
	}
	p.ns, p.enrolled, p.awaitsZtunnel, p.backend, p.repaired = ns, false, false, "", nil
}

// timeSince sets begin to the present time if it is zero, and returns the time since begin.
func timeSince(begin *time.Time) time.Duration {
	if begin.IsZero() {
		*begin = time.Now()
	}
	return time.Since(*begin)
}

// A PendingPod is a pod in the state [Pending].
type PendingPod struct {
	Ref source.Ref
	// Err is the error of the last attempt to enroll the pod, or the refusal of a ztunnel that
	// connected later; nil if there was neither, or while the pod is being enrolled or reconciled.
	Err error
}

// Pending returns the pods that are not enrolled, are refused by ztunnel, or are being enrolled or
// reconciled, sorted by name.
func (n *Node) Pending() []PendingPod {
	n.mu.Lock()
	pending := n.pending()
	n.mu.Unlock()
	slices.SortFunc(pending, func(a, b PendingPod) int {
		return strings.Compare(a.Ref.String(), b.Ref.String())
	})
	return pending
}

// pending is like Pending, in any order. The caller holds n.mu.
func (n *Node) pending() []PendingPod {
	var pending []PendingPod
	for _, p := range n.pods {
		if !p.lock.TryAcquire(1) {
			pending = append(pending, PendingPod{Ref: p.ref})
			continue
		}
		err := p.err
		if p.enrolled {
			err = n.Ztunnel.Refused(p.ref.UID)
		}
		if !p.enrolled || err != nil {
			pending = append(pending, PendingPod{p.ref, err})
		}
		p.lock.Release(1)
	}
	return pending
}

// Restored reports whether the pods of the node are known. Before that, no pod is enrolled.
func (n *Node) Restored() bool {
	select {
	case <-n.restored:
		return true
	default:
		return false
	}
}

// Count returns the number of pods by state. A pod that is being enrolled or reconciled counts as
// pending.
func (n *Node) Count() map[State]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	pending := len(n.pending())
	return map[State]int{Enrolled: len(n.pods) - pending, Pending: pending}
}

// The reasons of events on pods.
const (
	reasonNotEnrolled = "AmbientNotEnrolled"
	reasonNotUpdated  = "AmbientNotUpdated" // the pod is enrolled, and keeps its earlier rules
)

// requestTimeout is the time limit of a request that sends an event or changes an annotation.
const requestTimeout = 5 * time.Second

// report logs an error of a running pod and sends an event, unless the error of the last call had
// the same kind and its event was sent. The texts are not compared, because they may contain
// durations. A nil error reports nothing.
func (n *Node) report(ctx context.Context, p *pod, err error) {
	kind := string(source.KindOf(err))
	isNew := kind != p.reportedKind
	if !isNew && !p.isEventUnsent {
		return
	}
	p.reportedKind, p.isEventUnsent = kind, false
	if err == nil {
		return
	}
	reason, text := reasonNotEnrolled, "a pod in ambient mode is not enrolled"
	message := "the pod is in ambient mode and not enrolled: "
	if p.enrolled {
		reason, text = reasonNotUpdated, "a pod in ambient mode keeps its earlier rules"
		message = "the pod is in ambient mode and keeps its earlier rules: "
	}
	if isNew {
		n.Log.Warn(text, podField(p.ref), zap.Error(err))
	}
	p.isEventUnsent = !n.sendEvent(ctx, p.ref, reason, message+err.Error())
}

// sendEvent sends an event about a pod, and reports whether this succeeded.
func (n *Node) sendEvent(ctx context.Context, ref source.Ref, reason, message string) bool {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := n.Cluster.SendEvent(ctx, cluster.Event{
		About: cluster.Object{
			Kind: "Pod", APIVersion: "v1", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		},
		Warning: true, Reason: reason, Node: n.NodeName, Time: time.Now(), Count: 1,
		Message: message,
	})
	if err != nil {
		n.Log.Debug("an event on a pod cannot be sent", podField(ref), zap.Error(err))
	}
	return err == nil
}

// reportLongWait sends an event if the ADD of a pod waits for ztunnel longer than ReportWait. The
// caller calls done when the wait ends.
func (n *Node) reportLongWait(ctx context.Context, p ztunnel.Pod) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-time.After(n.ReportWait):
		case <-ctx.Done():
			return
		}
		cause := "ztunnel has not acknowledged the pod yet"
		if !n.Ztunnel.IsConnected() {
			cause = ztunnel.ErrNotConnected.Error()
		}
		n.sendEvent(ctx, source.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			reasonNotEnrolled, "the pod is in ambient mode and waits for ztunnel: "+cause)
	})
	return func() {
		cancel()
		group.Wait()
	}
}
