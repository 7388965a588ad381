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

// Locate returns where a pod of the node is, and what it should have there, whether it is audited
// or not. The errors are those of [source.Source].
func (a *Auditor) Locate(ctx context.Context, namespace, name string) (agent.Location, error) {
	item, ok := a.Pods.Item(namespace, name)
	if !ok {
		return agent.Location{}, source.WithKind(source.NotFound, fmt.Errorf("this node has no pod %s/%s", namespace, name))
	}
	if err := a.records.Refresh(); err != nil {
		return agent.Location{}, source.WithKind(source.Unavailable, fmt.Errorf("records of ADD: %w", err))
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
		Decision: w.decision.Outcome.String(), Reason: string(w.decision.Reason), Sentence: w.decision.Sentence, Redirect: w.redirect,
	}
	if w.engine != compat.BackendAuto {
		l.Backend = string(w.engine)
	}
	place, why := a.placeOf(ctx, item.UID, sandbox.Pod{Namespace: namespace, Name: name, UID: w.sandboxUID})
	if place != nil {
		l.NetNS = place.Path
	}
	if w.decision.Outcome != decide.Redirect || w.redirect != nil {
		return l, nil
	}
	if l.Redirect, err = a.drafted(object, place); err != nil {
		return l, source.WithKind(source.Unavailable, errors.Join(why, err))
	}
	return l, nil
}

// drafted are the parameters of a pod of whose ADD nothing is known: by its sandbox, or without one
// by its status.
func (a *Auditor) drafted(object *decide.Pod, place *sandbox.Sandbox) (*rules.Redirect, error) {
	if place == nil {
		r, _, err := decide.Parameters(object, object.Addresses(), a.Decide)
		return &r, err
	}
	ns, err := a.Open(*place)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	return a.parameters(object, ns)
}

// placeOf returns the sandbox of a pod, which is sought if it is not known; nil if there is none,
// with the reason.
func (a *Auditor) placeOf(ctx context.Context, uid string, p sandbox.Pod) (*sandbox.Sandbox, error) {
	a.mu.Lock()
	known := a.pods[uid]
	if known != nil && known.place != nil {
		defer a.mu.Unlock()
		return known.place, nil
	}
	a.mu.Unlock()
	found, missing := a.Find(ctx, []sandbox.Pod{p})
	if place, ok := found[p.UID]; ok {
		return &place, nil
	}
	var why error
	for _, m := range missing {
		why = errors.Join(why, m.Err)
	}
	return nil, why
}
