package audit

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// origin is the source of the desired state of a pod.
type origin uint8

const (
	fromPod     origin = iota // from the pod, because no record defines it
	fromADD                   // from the record of its ADD
	fromRepair                // from the store of repairs
	fromAmbient               // from the agent, which has enrolled the pod in ambient mode
)

// A desiredState is the state that a pod should have.
type desiredState struct {
	decision decide.Decision
	origin   origin
	// redirection is empty if the pod is not redirected, or if its parameters are still unknown.
	redirection
	backend    compat.BackendName
	repairedAt time.Time // zero if the pod was not repaired
	// sandboxPod is the pod as the runtime knows it. A static pod has another UID in the API
	// server.
	sandboxPod sandbox.Pod
	// addresses contains the addresses in the pod's status. If there are any, the pod has or had a
	// sandbox.
	addresses []netip.Addr
}

// A redirection contains the parameters of the rules in a pod. At most one field is not nil. The
// parameters that a field points to never change: two redirections that are equal with == have the
// same parameters.
type redirection struct {
	redirect *rules.Redirect // to the sidecar
	ambient  *rules.Ambient  // to ztunnel
}

// compile returns the ruleset of a redirection that is not empty.
func (r redirection) compile() (rules.Ruleset, error) {
	if r.ambient != nil {
		return rules.CompileAmbient(*r.ambient)
	}
	return rules.Compile(*r.redirect)
}

// hasCounters reports whether the rules of a redirection that is not empty have counters.
func (r redirection) hasCounters() bool {
	if r.ambient != nil {
		return r.ambient.Counters
	}
	return r.redirect.Counters
}

// fetchPod returns the object of a pod, from the cache if possible.
func (a *Auditor) fetchPod(ctx context.Context, item podcache.Item) (*decide.Pod, error) {
	return podcache.ReadPod(ctx, a.Pods, item.Ref)
}

// recordsOf returns the records of ADD for a pod. The records of a static pod have the pod's config
// hash as the UID. The config hash is an annotation that users can set. Therefore recordsOf returns
// such records only if they have the pod's name.
func (a *Auditor) recordsOf(pod *decide.Pod) []*record.Record {
	if records := a.records.Of(pod.Metadata.UID); len(records) > 0 {
		return records
	}
	hash := pod.ConfigHash()
	if hash == "" {
		return nil
	}
	records := a.records.Of(hash)
	if slices.ContainsFunc(records, func(r *record.Record) bool {
		return r.Pod.Namespace != pod.Metadata.Namespace || r.Pod.Name != pod.Metadata.Name
	}) {
		return nil
	}
	return records
}

// desiredOf returns the desired state of a pod.
func (a *Auditor) desiredOf(
	ctx context.Context, pod *decide.Pod, records []*record.Record,
) (desiredState, error) {
	d := a.recordedState(pod, records)
	switch {
	case d.origin == fromADD && d.redirect == nil && a.Decide.Ambient != nil:
		return a.updateMode(ctx, pod, d)
	case d.origin == fromPod:
		var err error
		d.decision, err = a.decide(ctx, pod)
		return d, err
	}
	return d, nil
}

// recordedState returns the desired state that the records of ADD or the store of repairs define.
// If they define none, the origin of the result is fromPod, and the result contains no decision.
func (a *Auditor) recordedState(pod *decide.Pod, records []*record.Record) desiredState {
	d := desiredState{
		backend: a.Backend, sandboxPod: sandbox.PodOf(pod), addresses: pod.Addresses(),
	}
	if len(records) > 0 { // all have the pod's name, and may have another UID
		d.sandboxPod = sandbox.Pod{
			Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name, UID: records[0].Pod.UID,
		}
	}
	if r := decisiveRecord(records); r != nil {
		d.origin = fromADD
		d.decision = decide.Decision{
			Outcome: decide.Skip, Reason: decide.Reason(r.Reason),
			Message: "ADD did not redirect the pod",
		}
		if r.Redirect != nil {
			d.decision.Outcome, d.decision.Message = decide.Redirect, "ADD redirected the pod"
			d.redirect, d.backend = r.Redirect, r.Backend
		}
		if r.Ambient != nil {
			d.decision.Outcome = decide.Ambient
			d.decision.Message = "ADD redirected the pod to ztunnel"
			d.ambient, d.backend = r.Ambient, r.Backend
		}
		return d
	}
	if e, ok := a.repairs.of(pod.Metadata.UID); ok {
		d.decision = decide.Decision{
			Outcome: decide.Redirect, Reason: decide.MeshPod,
			Message: "the pod started without the plugin, and was repaired",
		}
		d.origin, d.redirect, d.backend, d.repairedAt = fromRepair, &e.Redirect, e.Backend, e.Time
	}
	return d
}

// updateMode decides again whether a pod without a redirection to a sidecar is in ambient mode,
// because pods enter and leave this mode while they run. It returns the changed desired state.
func (a *Auditor) updateMode(
	ctx context.Context, pod *decide.Pod, d desiredState,
) (desiredState, error) {
	decision, err := a.decide(ctx, pod)
	switch {
	case err != nil:
		return d, err
	case decision.Outcome == decide.Ambient:
		d.decision = decision
	case d.ambient != nil:
		d.decision = decide.Decision{
			Outcome: decide.Skip, Reason: decision.Reason,
			Message: "the pod has left ambient mode: " + decision.Message,
		}
		d.redirection = redirection{}
	}
	return d, nil
}

// decisiveRecord returns the record of ADD that contains the desired state of the pod, or nil. A
// pod has one record for each attachment, and all redirected attachments have the same rules. Among
// the records of one sandbox, a record with a redirection takes precedence. Otherwise the newest
// record takes precedence.
func decisiveRecord(records []*record.Record) *record.Record {
	var best *record.Record
	for _, r := range records {
		if !r.Decided() {
			continue
		}
		switch {
		case best == nil:
			best = r
		case best.ContainerID == r.ContainerID && best.HasRules() != r.HasRules():
			if r.HasRules() {
				best = r
			}
		case r.Time.After(best.Time):
			best = r
		}
	}
	return best
}

// decide returns the decision that ADD would make for the pod.
func (a *Auditor) decide(ctx context.Context, pod *decide.Pod) (decide.Decision, error) {
	in := decide.Input{
		Attachment: decide.Attachment{Namespace: pod.Metadata.Namespace, Name: pod.Metadata.Name},
		Pod:        pod,
	}
	return decide.WithNamespace(in, a.Decide, func(name string) (*decide.Namespace, error) {
		return podcache.ReadNamespace(ctx, a.Pods, name)
	})
}

// updateDesired determines the desired state of the pod again if one of its inputs has changed.
func (r *auditRun) updateDesired(ctx context.Context) error {
	if err := r.Auditor.records.Refresh(); err != nil {
		return fmt.Errorf("read the records of ADD: %w", err)
	}
	// An ADD shows that the runtime uses the plugin again.
	if err := r.Bypass.NoteAdd(r.Auditor.records.Latest()); err != nil {
		r.warn("cannot store that the runtime uses the plugin again", err)
	}
	uid := r.item.UID // the UID in the records
	if r.version != "" {
		uid = r.desired.sandboxPod.UID
	}
	if r.version == r.item.ResourceVersion &&
		slices.Equal(r.pod.records, r.Auditor.records.Of(uid)) {
		return nil
	}
	object := identityOf(r.item.Ref)
	if !r.orphaned {
		var err error
		if object, err = r.fetchPod(ctx, r.item); err != nil {
			return err
		}
	}
	records := r.recordsOf(object)
	if r.isRecordDecisive(records) {
		r.version = r.item.ResourceVersion
		return nil
	}
	d, err := r.desiredOf(ctx, object, records)
	if err != nil {
		return err
	}
	if d.origin == fromPod && r.desired.origin == fromPod && d.decision == r.desired.decision {
		d.redirect = r.desired.redirect // the parameters are known already
	}
	r.version, r.pod.records, r.desired = r.item.ResourceVersion, records, d
	if r.isStatic() {
		r.removeOrphan(d.sandboxPod.UID) // the mirror pod has appeared
	}
	return nil
}

// isStatic reports whether the pod is a mirror pod, whose static pod has another UID.
func (r *auditRun) isStatic() bool { return r.desired.sandboxPod.UID != r.uid }

// recreationInstruction returns the instruction for creating the pod again.
func (r *auditRun) recreationInstruction() string {
	if r.isStatic() {
		return "move the pod's manifest out of the kubelet's directory and back"
	}
	return "delete the pod so that it is created again"
}

// identityOf returns an object for an orphaned pod that contains only the pod's identity.
func identityOf(ref source.Ref) *decide.Pod {
	return &decide.Pod{Metadata: decide.Metadata{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
	}}
}

// isRecordDecisive reports whether the record of ADD still defines the desired state although it
// was removed. DEL removes the record before the runtime removes the sandbox, which keeps its rules
// until then. If the pod is not redirected, its sandbox is not known: the record then remains
// decisive for errorBackoff, and isRecordDecisive plans the next audit for the end of this time. It
// also maintains recordRemovedAt.
func (r *auditRun) isRecordDecisive(records []*record.Record) bool {
	if len(records) > 0 || r.desired.origin != fromADD {
		r.recordRemovedAt = time.Time{}
		return false
	}
	if r.recordRemovedAt.IsZero() {
		r.recordRemovedAt = r.now
	}
	isDecisive := r.sandboxExists()
	if r.desired.decision.Outcome != decide.Redirect {
		r.nextAuditAt = r.recordRemovedAt.Add(errorBackoff)
		isDecisive = r.nextAuditAt.After(r.now)
	}
	if !isDecisive {
		r.recordRemovedAt = time.Time{}
	}
	return isDecisive
}

// ensureParameters determines the parameters of a pod without a record of ADD, unless they are
// known.
func (r *auditRun) ensureParameters(ctx context.Context, ns Namespace) error {
	if r.desired.redirection != (redirection{}) {
		return nil
	}
	object, err := r.fetchPod(ctx, r.item)
	if err != nil {
		return err
	}
	r.desired.redirect, err = r.parameters(object, ns)
	return err
}

// errNoAddress is the error for a network namespace without an address: none is assigned yet, or
// the sandbox is being removed.
var errNoAddress = errors.New("the pod's network namespace has no address")

// An invalidPodError is the error for a pod whose parameters are invalid.
type invalidPodError struct{ error }

// parameters returns the parameters that ADD would use for a pod with the addresses of the network
// namespace.
func (a *Auditor) parameters(object *decide.Pod, ns Namespace) (*rules.Redirect, error) {
	addresses, err := ns.Addresses()
	if err != nil {
		return nil, fmt.Errorf("read the addresses of the pod: %w", err)
	}
	if len(decide.GlobalAddresses(addresses)) == 0 {
		return nil, errNoAddress
	}
	r, _, err := decide.Parameters(object, addresses, a.Decide)
	if err != nil {
		return nil, invalidPodError{err}
	}
	return &r, nil
}

// policyPod returns the properties of the pod that the policy needs.
func (r *auditRun) policyPod(ctx context.Context) (repair.Pod, error) {
	object, err := r.fetchPod(ctx, r.item)
	return repair.Pod{Item: r.item, Pod: object, Node: r.NodeName}, err
}
