package ambient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	vishnetns "github.com/vishvananda/netns"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/ztunnel"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/route"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// A stepError is the error of a step of an enrolment.
type stepError struct {
	kind string // of [agent.Refuse]
	err  error
}

func (e *stepError) Error() string { return e.err.Error() }
func (e *stepError) Unwrap() error { return e.err }

// kindOf returns the step at which an error occurred.
func kindOf(err error) string {
	if step := (*stepError)(nil); errors.As(err, &step) {
		return step.kind
	}
	return string(source.KindOf(err))
}

func pointer(ref source.Ref) zap.Field { return zap.Stringer("pod", ref) }

func reason(err error) zap.Field { return zap.Error(err) }

// A desiredPod pod is the desired state of a pod in ambient mode.
type desiredPod struct {
	object  *decide.Pod
	ambient rules.Ambient
	notes   []decide.Note
}

// errNotAmbient is the error for a pod that should not be in ambient mode.
var errNotAmbient = errors.New("the pod is not in ambient mode")

// desired returns the desired state of a pod. The error wraps errNotAmbient if it should not be in
// ambient mode.
func (n *Node) desired(ctx context.Context, ref source.Ref) (desiredPod, error) {
	data, _, err := n.Pods.Pod(ctx, ref)
	if err != nil {
		return desiredPod{}, err
	}
	desired := desiredPod{object: new(decide.Pod)}
	if err := json.Unmarshal(data, desired.object); err != nil {
		return desiredPod{}, fmt.Errorf("decode pod %s: %w", ref, err)
	}
	in := decide.Input{
		Attachment: decide.Attachment{Namespace: ref.Namespace, Name: ref.Name}, Pod: desired.object,
	}
	d := decide.Decide(in, n.Decide)
	if d.Reason == decide.NamespaceUnknown {
		data, _, err := n.Pods.Namespace(ctx, ref.Namespace)
		if err != nil {
			return desired, err
		}
		in.Namespace = new(decide.Namespace)
		if err := json.Unmarshal(data, in.Namespace); err != nil {
			return desired, fmt.Errorf("decode namespace %s: %w", ref.Namespace, err)
		}
		d = decide.Decide(in, n.Decide)
	}
	if d.Outcome != decide.Ambient {
		return desired, fmt.Errorf("%w: %s", errNotAmbient, d.Message)
	}
	if desired.ambient, desired.notes, err = decide.AmbientParameters(desired.object, n.Decide); err != nil {
		return desired, &stepError{agent.KindParameters, err}
	}
	return desired, nil
}

// Add enrols a pod that starts in a network namespace with the addresses, and returns what was
// done. It waits for ztunnel until the context or AddTime ends. Its errors have a kind of package
// agent. The caller closes ns.
func (n *Node) Add(
	ctx context.Context, ref source.Ref, ns *netns.NS, addresses []netip.Addr,
) (agent.Enrolment, error) {
	start := time.Now()
	e, err := n.add(ctx, ref, ns, addresses)
	n.Enrolled(err)
	if err != nil {
		n.Log.Warn("a pod in ambient mode does not start", pointer(ref), reason(err),
			zap.Duration("after", time.Since(start)))
		return e, withKind(err)
	}
	return e, nil
}

// withKind gives the error of a step the kind that the plugin receives.
func withKind(err error) error {
	if step := (*stepError)(nil); errors.As(err, &step) {
		return source.WithKind(source.Kind(step.kind), err)
	}
	return err
}

func (n *Node) add(
	ctx context.Context, ref source.Ref, ns *netns.NS, addresses []netip.Addr,
) (agent.Enrolment, error) {
	if n.IsHost(ns.ID()) {
		return agent.Enrolment{}, &stepError{
			agent.KindRules,
			errors.New("the network namespace is the node's"),
		}
	}
	ctx, cancel := context.WithTimeout(ctx, n.AddTime)
	defer cancel()
	select {
	case <-n.restored:
	case <-ctx.Done():
		return agent.Enrolment{}, source.WithKind(source.Unavailable,
			errors.New("the agent is starting and has not listed the pods of the node yet"))
	}
	desired, err := n.desired(ctx, ref)
	if err != nil {
		return agent.Enrolment{}, err
	}
	ref.UID = desired.object.Metadata.UID // a static pod has another UID in the kubelet
	own, err := netns.FromHandle(vishnetns.NsHandle(ns.FD()))
	if err != nil {
		return agent.Enrolment{}, &stepError{agent.KindRules, err}
	}
	p := n.pod(ref, true)
	if err := p.lock.acquire(ctx); err != nil {
		_ = own.Close()
		return agent.Enrolment{}, source.WithKind(source.Unavailable,
			errors.New("another request for the pod is not finished"))
	}
	defer p.lock.release()
	defer n.queue.Add(podName{ref.Namespace, ref.Name}) // for the annotation
	if p.ns == nil || p.ns.ID() != own.ID() {
		p.setNS(own)
	} else {
		_ = own.Close()
	}
	applied, err := n.enrol(ctx, p, desired, addresses, true, false)
	if err != nil {
		n.release(p)
		return agent.Enrolment{}, err
	}
	e := agent.Enrolment{
		Ambient: p.ambient, Backend: string(applied.Backend), Outcome: string(applied.Outcome),
		Rules: applied.Rules, Routes: applied.Routes, Bytes: applied.Bytes,
	}
	for _, note := range desired.notes {
		e.Notes = append(e.Notes, note.String())
	}
	return e, nil
}

// release forgets the network namespace of a pod whose ADD failed: the runtime removes it, and
// calls ADD again with another one.
func (n *Node) release(p *pod) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // ztunnel is told, but not waited for
	_ = n.Ztunnel.Remove(ctx, p.ref.UID)
	if err := n.Host.Remove(p.ref.UID); err != nil {
		n.Log.Debug("the node's rules contain the addresses of a pod that does not start",
			pointer(p.ref), reason(err))
	}
	p.setNS(nil)
	p.addresses = nil
}

// enrol performs the first three steps for a pod with a known network namespace, whose lock the
// caller holds. An ADD waits until a ztunnel connects. Otherwise expected reports that the pod
// should have the rules already.
func (n *Node) enrol(
	ctx context.Context, p *pod, desired desiredPod, addresses []netip.Addr, isADD, expected bool,
) (applied compat.Result, err error) {
	p.enrolled, p.annotates = false, true
	p.annotation = annotationPending
	defer func() {
		if p.err = err; err == nil {
			p.enrolled, p.annotation = true, annotationEnabled
		}
	}()
	if applied, err = n.install(p, desired.ambient, expected); err != nil {
		p.annotates = false // a pod without rules is not pending, as in Istio
		return applied, &stepError{agent.KindRules, err}
	}
	reported := ztunnel.Pod{
		UID: p.ref.UID, Name: p.ref.Name, Namespace: p.ref.Namespace,
		ServiceAccount: desired.object.Spec.ServiceAccountName, Netns: p.ns,
	}
	if applied.Outcome != nft.Unchanged {
		p.fresh = true
	}
	if err = n.notifyZtunnel(ctx, reported, isADD); err != nil {
		// Rules that were there already prove that the pod was enrolled since it started: the
		// agent was restarted, and ztunnel has not connected again yet.
		p.annotates = p.fresh || !errors.Is(err, ztunnel.ErrNotConnected)
		return applied, &stepError{agent.KindZtunnel, err}
	}
	p.fresh = false
	if len(addresses) == 0 {
		if addresses, err = route.Addresses(p.ns); err != nil {
			return applied, &stepError{agent.KindRules, fmt.Errorf("read the pod's addresses: %w", err)}
		}
	}
	if err = n.Host.Set(p.ref.UID, addresses); err != nil {
		return applied, &stepError{
			agent.KindHost,
			fmt.Errorf("the node's rules for probes cannot be changed: %w", err),
		}
	}
	p.addresses = addresses
	return applied, nil
}

// connectInterval is the time between two attempts while no ztunnel is connected.
const connectInterval = 50 * time.Millisecond

// notifyZtunnel tells ztunnel about a pod, and returns when it has acknowledged it. A ztunnel that
// serves the pod and is not connected, because the agent was restarted or because it is still
// connected to istio-cni, is told when it connects.
func (n *Node) notifyZtunnel(ctx context.Context, p ztunnel.Pod, waits bool) error {
	start := time.Now()
	if waits {
		defer n.reportWait(ctx, p)()
	}
	for {
		err := n.Ztunnel.Add(ctx, p)
		if err == nil || !errors.Is(err, ztunnel.ErrNotConnected) {
			return err
		}
		if served, serveErr := ztunnel.Serves(p.Netns); served || serveErr != nil {
			return serveErr
		}
		if !waits {
			return err
		}
		timer := time.NewTimer(connectInterval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("waited %v for ztunnel: %w", time.Since(start).Round(time.Second/10), err)
		}
	}
}

// sameAmbient reports whether the parameters compile to equal rules.
func sameAmbient(a, b rules.Ambient) bool {
	return a.DNS == b.DNS && a.BypassInboundCapture == b.BypassInboundCapture && a.IPv6 == b.IPv6 &&
		a.Counters == b.Counters && slices.Equal(a.RerouteInterfaces, b.RerouteInterfaces) &&
		a.ProbeSourceIPv4 == b.ProbeSourceIPv4 && a.ProbeSourceIPv6 == b.ProbeSourceIPv6 &&
		slices.Equal(a.Without, b.Without)
}
