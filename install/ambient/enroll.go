package ambient

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

func podField(ref source.Ref) zap.Field { return zap.Stringer("pod", ref) }

// A desiredPod is the desired state of a pod in ambient mode.
type desiredPod struct {
	object  *decide.Pod
	ambient rules.Ambient
	notes   []decide.Note
}

// errNotAmbient is the error for a pod that should not be in ambient mode.
var errNotAmbient = errors.New("the pod is not in ambient mode")

// desiredPod returns the desired state of a pod. The error wraps errNotAmbient if the pod should
// not be in ambient mode. With an error, only the object is valid, and it is nil if the pod could
// not be read.
func (n *Node) desiredPod(ctx context.Context, ref source.Ref) (desiredPod, error) {
	return n.desiredPodIn(ctx, ref, func(name string) (*decide.Namespace, error) {
		return podcache.ReadNamespace(ctx, n.Pods, name)
	})
}

// desiredPodIn is like desiredPod, and calls namespace if it needs the pod's namespace.
func (n *Node) desiredPodIn(
	ctx context.Context, ref source.Ref, namespace func(name string) (*decide.Namespace, error),
) (desiredPod, error) {
	object, err := podcache.ReadPod(ctx, n.Pods, ref)
	if err != nil {
		return desiredPod{}, err
	}
	desired := desiredPod{object: object}
	d, err := decide.WithNamespace(decide.Input{
		Attachment: decide.Attachment{Namespace: ref.Namespace, Name: ref.Name}, Pod: object,
	}, n.Decide, namespace)
	if err != nil {
		return desired, err
	}
	if d.Outcome != decide.Ambient {
		return desired, fmt.Errorf("%w: %s", errNotAmbient, d.Message)
	}
	desired.ambient, desired.notes, err = decide.AmbientParameters(object, n.Decide)
	if err != nil {
		return desired, source.WithKind(agent.KindParameters, err)
	}
	return desired, nil
}

// Add enrolls a starting pod with the given network namespace and addresses, and returns a
// description of the installed rules. It waits until the pods of the node are known, other work on
// the pod has ended, and ztunnel has acknowledged the pod, but not longer than ctx and AddTimeout
// permit. After [Node.Uninstall] it fails. Its errors have a kind ([source.KindOf]). The caller
// closes ns.
func (n *Node) Add(
	ctx context.Context, ref source.Ref, ns *netns.NS, addresses []netip.Addr,
) (agent.Enrollment, error) {
	start := time.Now()
	e, err := n.add(ctx, ref, ns, addresses)
	n.EnrollAttempted(err)
	if err != nil {
		n.Log.Warn("a pod in ambient mode does not start", podField(ref), zap.Error(err),
			zap.Duration("after", time.Since(start)))
	}
	return e, err
}

func (n *Node) add(
	ctx context.Context, ref source.Ref, ns *netns.NS, addresses []netip.Addr,
) (agent.Enrollment, error) {
	if n.IsHost(ns.ID()) {
		return agent.Enrollment{}, source.WithKind(agent.KindRules,
			errors.New("the network namespace is the node's"))
	}
	ctx, cancel := context.WithTimeout(ctx, n.AddTimeout)
	defer cancel()
	select {
	case <-n.restored:
	case <-ctx.Done():
		return agent.Enrollment{}, source.WithKind(source.Unavailable,
			errors.New("the agent is starting and has not listed the pods of the node yet"))
	}
	if n.uninstalled.Load() {
		return agent.Enrollment{}, errUninstalled
	}
	desired, err := n.desiredPod(ctx, ref)
	if err != nil {
		return agent.Enrollment{}, err
	}
	ref.UID = desired.object.Metadata.UID // a static pod has another UID in the kubelet
	duplicate, err := netns.FromHandle(ns.Handle())
	if err != nil {
		return agent.Enrollment{}, source.WithKind(agent.KindRules, err)
	}
	p, err := n.lockForADD(ctx, ref)
	if err != nil {
		_ = duplicate.Close()
		return agent.Enrollment{}, source.WithKind(source.Unavailable,
			errors.New("another enrollment or reconciliation of the pod has not finished"))
	}
	defer p.lock.Release(1)
	// The reconciliation sets the annotation.
	defer n.queue.Add(nameOf(ref))
	if p.ns == nil || p.ns.ID() != duplicate.ID() {
		p.setNS(duplicate)
	} else {
		_ = duplicate.Close()
	}
	applied, err := n.enroll(ctx, p, desired, addresses, true, false)
	// Uninstall may have been called meanwhile. If it is called later, it waits for p.lock.
	if err == nil && n.uninstalled.Load() {
		err = errUninstalled
	}
	if err != nil {
		n.undoAdd(p)
		return agent.Enrollment{}, err
	}
	e := agent.Enrollment{
		Ambient: p.ambient, Backend: string(applied.Backend), Outcome: string(applied.Outcome),
		Rules: applied.Rules, Routes: applied.Routes, Bytes: applied.Bytes,
	}
	for _, note := range desired.notes {
		e.Notes = append(e.Notes, note.String())
	}
	return e, nil
}

// undoAdd removes a pod whose ADD failed from ztunnel and from the node's rules, and closes the
// pod's network namespace. Rules stay in the namespace: the runtime removes the namespace, and
// calls ADD again with a new namespace.
func (n *Node) undoAdd(p *pod) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // Remove sends the message, and does not wait for the acknowledgement
	_ = n.Ztunnel.Remove(ctx, p.ref.UID)
	if err := n.Host.Remove(p.ref.UID); err != nil {
		n.Log.Debug("the node's rules may contain the addresses of a pod that does not start",
			podField(p.ref), zap.Error(err))
	}
	p.setNS(nil)
	p.addresses = nil
}

// enroll installs the rules of a pod with a known network namespace, sends the pod to ztunnel, and
// adds its addresses to the node's rules. If addresses is empty, it reads them from the network
// namespace. The caller holds the pod's lock. If isADD is set, enroll waits for a ztunnel until ctx
// is done. If rulesExpected is set, the pod should have the rules already, and missing or changed
// rules are differences for the audit.
func (n *Node) enroll(
	ctx context.Context, p *pod, desired desiredPod, addresses []netip.Addr,
	isADD, rulesExpected bool,
) (applied compat.Result, err error) {
	defer func() { p.err = err }()
	if applied, err = n.install(ctx, p, desired.ambient, isADD, rulesExpected); err != nil {
		// After a failed write it is unknown which rules the pod has.
		if wrote := applied.Outcome != "" && applied.Outcome != nft.Unchanged; p.backend == "" || wrote {
			// The annotation of a pod without rules is not set to pending, as in Istio. With its
			// earlier rules, a pod stays enrolled.
			p.enrolled, p.shouldAnnotate = false, false
		}
		return applied, source.WithKind(agent.KindRules, err)
	}
	p.enrolled, p.shouldAnnotate, p.annotation = false, true, annotationPending
	defer func() {
		if err == nil {
			p.enrolled, p.annotation = true, annotationEnabled
		}
	}()
	reported := ztunnel.Pod{
		UID: p.ref.UID, Name: p.ref.Name, Namespace: p.ref.Namespace,
		ServiceAccount: desired.object.Spec.ServiceAccountName, Netns: p.ns,
	}
	if applied.Outcome != nft.Unchanged {
		p.awaitsZtunnel = true
	}
	if err = n.notifyZtunnel(ctx, reported, isADD); err != nil {
		// If the rules existed already, an earlier agent has enrolled the pod, and ztunnel has not
		// connected to this agent yet. The annotation then stays.
		p.shouldAnnotate = p.awaitsZtunnel || !errors.Is(err, ztunnel.ErrNotConnected)
		return applied, source.WithKind(agent.KindZtunnel, err)
	}
	p.awaitsZtunnel = false
	if len(addresses) == 0 {
		if addresses, err = route.Addresses(p.ns); err != nil {
			return applied, source.WithKind(agent.KindRules,
				fmt.Errorf("read the pod's addresses: %w", err))
		}
	}
	if err = n.Host.Set(p.ref.UID, addresses); err != nil {
		return applied, source.WithKind(agent.KindHost,
			fmt.Errorf("the node's rules for probes cannot be changed: %w", err))
	}
	p.addresses = addresses
	return applied, nil
}

// pollInterval is the time between two attempts while no ztunnel is connected, and between two
// checks whether the pods of the node have been listed.
const pollInterval = 50 * time.Millisecond

// notifyZtunnel sends a pod to ztunnel, and returns nil once ztunnel has acknowledged the pod. If
// no ztunnel is connected, because the agent was restarted or ztunnel is still connected to
// istio-cni, the listeners of ztunnel in the pod's network namespace suffice. If they are missing
// too, notifyZtunnel waits for a connection or the listeners if wait is set, and otherwise returns
// an error.
func (n *Node) notifyZtunnel(ctx context.Context, p ztunnel.Pod, wait bool) error {
	start := time.Now()
	if wait {
		defer n.reportLongWait(ctx, p)()
	}
	for {
		err := n.Ztunnel.Add(ctx, p)
		if err == nil || !errors.Is(err, ztunnel.ErrNotConnected) {
			return err
		}
		if served, serveErr := ztunnel.Serves(p.Netns); served || serveErr != nil {
			return serveErr
		}
		if !wait {
			return err
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			waited := time.Since(start).Round(time.Second / 10)
			return fmt.Errorf("waited %v for ztunnel: %w", waited, err)
		}
	}
}
