package audit

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// Locate returns the location of a pod of the node and its desired redirection, even if the pod is
// not audited or is orphaned. Errors are classified as for [source.Source].
func (a *Auditor) Locate(ctx context.Context, namespace, name string) (agent.Location, error) {
	if err := a.records.Refresh(); err != nil {
		return agent.Location{}, source.WithKind(source.Unavailable,
			fmt.Errorf("read the records of ADD: %w", err))
	}
	item, ok := a.Pods.Item(namespace, name)
	switch {
	case !ok && !a.Pods.Synced():
		return agent.Location{}, source.WithKind(source.Unavailable,
			errors.New("the agent does not know the node's pods yet"))
	case !ok:
		return a.locateOrphan(ctx, namespace, name)
	}
	pod, err := a.fetchPod(ctx, item)
	if err != nil {
		return agent.Location{}, err
	}
	d, err := a.desiredOf(ctx, pod, a.recordsOf(pod))
	if err != nil {
		return agent.Location{}, err
	}
	p, err := a.ambientPod(ctx, item.UID)
	if err != nil {
		return agent.Location{}, source.WithKind(source.Unavailable, err)
	}
	if p != nil {
		d.decision.Outcome = decide.Ambient
		d.decision.Message = "the agent has enrolled the pod in ambient mode"
		d.redirection, d.backend = redirection{ambient: &p.Parameters}, p.Backend
		p.Release()
	}
	l := a.location(item.Ref, d)
	sb, reason := a.sandboxOf(ctx, item.UID, d.sandboxPod)
	if sb != nil {
		l.NetNS = sb.Path
		l.IPv6Bypass, l.IPv6Unknown = a.ipv6Bypass(pod, d, *sb)
	}
	if d.decision.Outcome == decide.Ambient {
		l.Ambient = d.ambient
		if l.Ambient == nil {
			parameters, _, err := decide.AmbientParameters(pod, a.Decide)
			if err != nil {
				return l, source.WithKind(source.Unavailable, err)
			}
			l.Ambient = &parameters
		}
		return l, nil
	}
	if d.decision.Outcome != decide.Redirect || d.redirect != nil {
		return l, nil
	}
	if l.Redirect, err = a.parametersWithoutRecord(pod, sb); err != nil {
		return l, source.WithKind(source.Unavailable, errors.Join(reason, err))
	}
	return l, nil
}

// location returns the location of a pod without its network namespace and without the parameters
// of ambient mode.
func (a *Auditor) location(ref source.Ref, d desiredState) agent.Location {
	l := agent.Location{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		Decision: d.decision.Outcome.String(), Reason: string(d.decision.Reason),
		Message: d.decision.Message, Redirect: d.redirect, Proc: a.Connections.ProcDir,
	}
	if d.backend != compat.BackendAuto {
		l.Backend = string(d.backend)
	}
	return l
}

// parametersWithoutRecord returns the parameters of a pod without a record of ADD. They are
// determined from the addresses of the sandbox, or from the addresses in the pod's status if sb is
// nil.
func (a *Auditor) parametersWithoutRecord(
	pod *decide.Pod, sb *sandbox.Sandbox,
) (*rules.Redirect, error) {
	if sb == nil {
		r, _, err := decide.Parameters(pod, pod.Addresses(), a.Decide)
		return &r, err
	}
	ns, err := a.Open(*sb)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	return a.parameters(pod, ns)
}

// sandboxOf returns the sandbox of a pod, and searches for it if it is unknown or no longer exists.
// If there is none, it returns nil and the reason.
func (a *Auditor) sandboxOf(
	ctx context.Context, uid string, p sandbox.Pod,
) (*sandbox.Sandbox, error) {
	var known *sandbox.Sandbox
	a.mu.Lock()
	if audited := a.pods[uid]; audited != nil {
		known = audited.sandbox
	}
	a.mu.Unlock()
	if known != nil {
		// The sandbox may have been replaced since the last audit, and its path be reused.
		if ns, err := a.Open(*known); err == nil {
			_ = ns.Close()
			return known, nil
		}
	}
	found, missing := a.FindSandboxes(ctx, []sandbox.Pod{p})
	if sb, ok := found[p]; ok {
		return &sb, nil
	}
	return nil, missing[p].Err
}
