package ambient

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

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
	// Enrolled: the rules are in the kernel, ztunnel has acknowledged the pod, and the node's rules
	// contain its addresses.
	Enrolled State = "enrolled"
	// Pending: some of that is missing.
	Pending State = "pending"
)

// States returns all states.
func States() []State { return []State{Enrolled, Pending} }

// A pod is a pod that is, or may be, in ambient mode. Its lock protects all fields but ref. It is
// held for as long as ztunnel does not answer.
type pod struct {
	ref  source.Ref
	lock lock

	// rules is held while the rules in the network namespace are read or written. The three fields
	// below change only with both locks, and can be read with one of them.
	rules sync.Mutex
	// ns is the network namespace; nil if it is unknown.
	ns *netns.NS
	// The rules in it, and the backend that contains them. The backend is empty before the first
	// success.
	ambient rules.Ambient
	backend compat.BackendName
	// repaired are differences that were repaired, until the audit has reported them; nil for none.
	// The audit sets it to nil with the lock of the rules alone.
	repaired *compat.Comparison

	addresses []netip.Addr
	enrolled  bool
	// fresh reports that the rules were installed, and ztunnel has not acknowledged the pod since.
	fresh bool
	err   error // of the last attempt

	// annotation is the value that the annotation should have; empty for none. It is meaningful if
	// annotates is set.
	annotation string
	annotates  bool
	// patchedVersion is the version of the object before the last patch, whose event has not
	// arrived while the object still has this version.
	patchedVersion string
	reported       string // the last reported error
}

// A lock is held while a pod is worked on.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) try() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l lock) release() { <-l }

// pod returns the pod with the UID, and creates it if create is set.
func (n *Node) pod(ref source.Ref, create bool) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pods[ref.UID]
	if p == nil && create {
		p = &pod{ref: ref, lock: newLock()}
		n.pods[ref.UID] = p
	}
	return p
}

// forget removes a pod, whose lock the caller holds.
func (n *Node) forget(p *pod) {
	p.setNS(nil)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[p.ref.UID] == p {
		delete(n.pods, p.ref.UID)
	}
}

// replacedPods returns the known pods with the name and another UID, which were deleted.
func (n *Node) replacedPods(name podName, uid string) []*pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []*pod
	for _, p := range n.pods {
		if p.ref.Namespace == name.namespace && p.ref.Name == name.name && p.ref.UID != uid {
			list = append(list, p)
		}
	}
	return list
}

// setNS replaces the network namespace. A pod in another one is not enrolled there.
func (p *pod) setNS(ns *netns.NS) {
	p.rules.Lock()
	defer p.rules.Unlock()
	if p.ns == ns {
		return
	}
	if p.ns != nil {
		_ = p.ns.Close()
	}
	p.ns, p.enrolled, p.fresh, p.backend, p.repaired = ns, false, false, "", nil
}

// A PendingPod is a pod that is not enrolled. Err is the reason, or nil while it is worked on.
type PendingPod struct {
	Ref source.Ref
	Err error
}

// Pending returns the pods that are not enrolled, by their names.
func (n *Node) Pending() []PendingPod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var pending []PendingPod
	for _, p := range n.pods {
		if !p.lock.try() {
			pending = append(pending, PendingPod{Ref: p.ref})
			continue
		}
		if !p.enrolled {
			pending = append(pending, PendingPod{p.ref, p.err})
		}
		p.lock.release()
	}
	slices.SortFunc(pending, func(a, b PendingPod) int { return strings.Compare(a.Ref.String(), b.Ref.String()) })
	return pending
}

// Restored reports whether the pods of the node are known, so that pods can be enrolled.
func (n *Node) Restored() bool {
	select {
	case <-n.restored:
		return true
	default:
		return false
	}
}

// Count returns the number of pods by state. A pod that is worked on is pending.
func (n *Node) Count() map[State]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := map[State]int{Enrolled: 0, Pending: 0}
	for _, p := range n.pods {
		state := Pending
		if p.lock.try() {
			if p.enrolled {
				state = Enrolled
			}
			p.lock.release()
		}
		count[state]++
	}
	return count
}

// eventReason is the reason of the event on a pod that cannot be enrolled.
const eventReason = "AmbientNotEnrolled"

// eventTime limits the request for an event.
const eventTime = 5 * time.Second

// report logs an error of a running pod and sends an event, unless it is the same as before.
func (n *Node) report(ctx context.Context, p *pod, err error) {
	text := ""
	if err != nil {
		text = kindOf(err) // the rest may contain durations
	}
	if text == p.reported {
		return
	}
	if p.reported = text; err == nil {
		return
	}
	n.Log.Warn("a pod in ambient mode is not enrolled", pointer(p.ref), reason(err))
	n.sendEvent(ctx, p.ref, "the pod is in ambient mode and not enrolled: "+err.Error())
}

// sendEvent sends an event about a pod.
func (n *Node) sendEvent(ctx context.Context, ref source.Ref, message string) {
	ctx, cancel := context.WithTimeout(ctx, eventTime)
	defer cancel()
	err := n.Cluster.SendEvent(ctx, cluster.Event{
		About: cluster.Object{
			Kind: "Pod", APIVersion: "v1", Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		},
		Warning: true, Reason: eventReason, Node: n.NodeName, Time: time.Now(), Count: 1,
		Message: message,
	})
	if err != nil {
		n.Log.Debug("no event for a pod", pointer(ref), reason(err))
	}
}

// reportWait sends an event if the ADD of a pod waits for ztunnel for a while. The caller calls
// done after the wait.
func (n *Node) reportWait(ctx context.Context, p ztunnel.Pod) (done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		timer := time.NewTimer(n.ReportWait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		reason := "ztunnel has not acknowledged it yet"
		if !n.Ztunnel.IsConnected() {
			reason = ztunnel.ErrNotConnected.Error()
		}
		n.sendEvent(ctx, source.Ref{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
			"the pod is in ambient mode and waits for ztunnel: "+reason)
	}()
	return func() {
		cancel()
		<-ended
	}
}
