package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// origin is the source of the desired state of a pod.
type origin uint8

const (
	decided  origin = iota // from the pod: nothing is known of an ADD
	added                  // from the record of its ADD
	repaired               // from the store of repairs
)

// desired is the state that a pod should have.
type desired struct {
	decision decide.Decision
	origin   origin
	// redirect is nil if the pod is not redirected, or if its addresses are still unknown.
	redirect *rules.Redirect
	backend  compat.BackendName
	repaired time.Time // when it was, by that store
	// sandboxUID is the UID of the pod in the kubelet, and up reports that its status has an
	// address and therefore a sandbox.
	sandboxUID string
	up         bool
}

// object returns the pod from the API server.
func (a *Auditor) object(ctx context.Context, item podcache.Item) (*decide.Pod, error) {
	text, _, err := a.Pods.Pod(ctx, item.Ref)
	if err != nil {
		return nil, err
	}
	pod := new(decide.Pod)
	if err := json.Unmarshal(text, pod); err != nil {
		return nil, fmt.Errorf("pod %s: %w", item.Ref, err)
	}
	return pod, nil
}

// configHash is the annotation that contains, in the API server's copy of a static pod, its UID in
// the kubelet.
const configHash = "kubernetes.io/config.hash"

// recordsOf returns the records of ADD for a pod. The annotation can be set by users, and is used
// only if the records belong to the same pod.
func (a *Auditor) recordsOf(pod *decide.Pod) []*record.Record {
	if list := a.records.Of(pod.Metadata.UID); len(list) > 0 {
		return list
	}
	hash := pod.Metadata.Annotations[configHash]
	if hash == "" {
		return nil
	}
	list := a.records.Of(hash)
	if slices.ContainsFunc(list, func(r *record.Record) bool {
		return r.Pod.Namespace != pod.Metadata.Namespace || r.Pod.Name != pod.Metadata.Name
	}) {
		return nil
	}
	return list
}

// desiredOf returns the desired state of a pod.
func (a *Auditor) desiredOf(
	ctx context.Context, pod *decide.Pod, records []*record.Record,
) (desired, error) {
	w := desired{backend: a.Backend, sandboxUID: pod.Metadata.UID, up: len(pod.Addresses()) > 0}
	if len(records) > 0 {
		w.sandboxUID = records[0].Pod.UID
	}
	if r := newestADD(records); r != nil {
		w.origin = added
		w.decision = decide.Decision{
			Outcome: decide.Skip, Reason: decide.Reason(r.Reason),
			Sentence: "ADD has left the pod alone",
		}
		if r.Redirect != nil {
			w.decision.Outcome, w.decision.Sentence = decide.Redirect, "ADD has redirected the pod"
			w.redirect, w.backend = r.Redirect, r.Backend
		}
		return w, nil
	}
	if e, ok := a.repairs.of(pod.Metadata.UID); ok {
		w.decision = decide.Decision{
			Outcome: decide.Redirect, Reason: decide.MeshPod,
			Sentence: "the pod started without the plugin, and was repaired",
		}
		w.origin, w.redirect, w.backend, w.repaired = repaired, &e.Redirect, e.Backend, e.Time
		return w, nil
	}
	var err error
	w.decision, err = a.decide(ctx, pod)
	return w, err
}

// newestADD returns the record with the desired state of the pod, or nil. Redirected attachments of
// a pod have the same rules; the record of the newest sandbox takes precedence.
func newestADD(records []*record.Record) *record.Record {
	var best *record.Record
	for _, r := range records {
		if !r.Decided() {
			continue
		}
		switch {
		case best == nil:
			best = r
		case best.ContainerID == r.ContainerID && (best.Redirect != nil) != (r.Redirect != nil):
			if r.Redirect != nil {
				best = r
			}
		case r.Time.After(best.Time):
			best = r
		}
	}
	return best
}

// decide decides like ADD.
func (a *Auditor) decide(ctx context.Context, pod *decide.Pod) (decide.Decision, error) {
	in := decide.Input{
		Attachment: decide.Attachment{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name},
		Pod:        pod,
	}
	d := decide.Decide(in, a.Decide)
	if d.Reason != decide.NamespaceUnknown {
		return d, nil
	}
	text, _, err := a.Pods.Namespace(ctx, pod.Metadata.Namespace)
	if err != nil {
		return d, err
	}
	in.Namespace = new(decide.Namespace)
	if err := json.Unmarshal(text, in.Namespace); err != nil {
		return d, fmt.Errorf("namespace %s: %w", pod.Metadata.Namespace, err)
	}
	return decide.Decide(in, a.Decide), nil
}

// updateDesired determines the desired state of a pod again if one of its inputs has changed.
func (a *Auditor) updateDesired(ctx context.Context, p *pod, item podcache.Item) error {
	if err := a.records.Refresh(); err != nil {
		return fmt.Errorf("records of ADD: %w", err)
	}
	a.note("that the runtime uses the plugin again is not kept", a.Bypass.Added(a.records.Newest()))
	uid := item.UID
	if p.version != "" {
		uid = p.desired.sandboxUID
	}
	if p.version == item.ResourceVersion && slices.Equal(p.records, a.records.Of(uid)) {
		return nil
	}
	object, err := a.object(ctx, item)
	if err != nil {
		return err
	}
	records := a.recordsOf(object)
	w, err := a.desiredOf(ctx, object, records)
	if err != nil {
		return err
	}
	if w.origin == decided && p.desired.origin == decided && w.decision == p.desired.decision {
		w.redirect = p.desired.redirect // the addresses are known already
	}
	p.version, p.records, p.desired = item.ResourceVersion, records, w
	return nil
}

// addParameters determines the parameters of a pod without a record of ADD.
func (a *Auditor) addParameters(
	ctx context.Context, p *pod, item podcache.Item, ns Namespace,
) error {
	if p.desired.redirect != nil {
		return nil
	}
	object, err := a.object(ctx, item)
	if err != nil {
		return err
	}
	p.desired.redirect, err = a.parameters(object, ns)
	return err
}

// errNoAddress means that a namespace has no address yet or no longer.
var errNoAddress = errors.New("the pod's network namespace has no address")

// parameters returns the parameters that ADD would use, with the addresses of the namespace.
func (a *Auditor) parameters(object *decide.Pod, ns Namespace) (*rules.Redirect, error) {
	addresses, err := ns.Addresses()
	if err != nil {
		return nil, fmt.Errorf("addresses of the pod: %w", err)
	}
	if len(addresses) == 0 {
		return nil, errNoAddress
	}
	r, _, err := decide.Parameters(object, addresses, a.Decide)
	if err != nil {
		return nil, err
	}
	return &r, nil
}

// policyPod returns the properties of the pod that the policy needs.
func (a *Auditor) policyPod(ctx context.Context, item podcache.Item) (repair.Pod, error) {
	object, err := a.object(ctx, item)
	return repair.Pod{Item: item, Pod: object, Node: a.NodeName}, err
}
