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

// Locate returns the location of a pod of the node and its desired redirection, whether or not it
// is audited. The errors are those of [source.Source].
func (a *Auditor) Locate(ctx context.Context, namespace, name string) (agent.Location, error) {
	item, ok := a.Pods.Item(namespace, name)
	if !ok {
		return agent.Location{}, source.WithKind(source.NotFound,
			fmt.Errorf("this node has no pod %s/%s", namespace, name))
	}
	if err := a.records.Refresh(); err != nil {
		return agent.Location{}, source.WithKind(source.Unavailable,
			fmt.Errorf("records of ADD: %w", err))
	}
	object, err := a.object(ctx, item)
	if err != nil {
		return agent.Location{}, err
	}
	w, err := a.desiredOf(ctx, object, a.recordsOf(object))
	if err != nil {
		return agent.Location{}, err
	}
	l := agent.Location{
		Namespace: namespace, Name: name, UID: item.UID,
		Decision: w.decision.Outcome.String(), Reason: string(w.decision.Reason),
		Sentence: w.decision.Sentence, Redirect: w.redirect,
	}
	if w.backend != compat.BackendAuto {
		l.Backend = string(w.backend)
	}
	sb, reason := a.sandboxOf(ctx, item.UID, sandbox.Pod{
		Namespace: namespace, Name: name, UID: w.sandboxUID,
	})
	if sb != nil {
		l.NetNS = sb.Path
	}
	if w.decision.Outcome != decide.Redirect || w.redirect != nil {
		return l, nil
	}
	if l.Redirect, err = a.parametersWithoutRecord(object, sb); err != nil {
		return l, source.WithKind(source.Unavailable, errors.Join(reason, err))
	}
	return l, nil
}

// parametersWithoutRecord returns the parameters of a pod without a record of ADD, with the
// addresses of its sandbox or of its status.
func (a *Auditor) parametersWithoutRecord(
	object *decide.Pod, sb *sandbox.Sandbox,
) (*rules.Redirect, error) {
	if sb == nil {
		r, _, err := decide.Parameters(object, object.Addresses(), a.Decide)
		return &r, err
	}
	ns, err := a.Open(*sb)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	return a.parameters(object, ns)
}

// sandboxOf returns the sandbox of a pod, which is searched if it is unknown; nil and the reason if
// there is none.
func (a *Auditor) sandboxOf(
	ctx context.Context, uid string, p sandbox.Pod,
) (*sandbox.Sandbox, error) {
	a.mu.Lock()
	known := a.pods[uid]
	if known != nil && known.sandbox != nil {
		defer a.mu.Unlock()
		return known.sandbox, nil
	}
	a.mu.Unlock()
	found, missing := a.Find(ctx, []sandbox.Pod{p})
	if sb, ok := found[p.UID]; ok {
		return &sb, nil
	}
	var reason error
	for _, m := range missing {
		reason = errors.Join(reason, m.Err)
	}
	return nil, reason
}
