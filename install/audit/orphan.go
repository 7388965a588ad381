package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// anyVersion is the version of an orphaned pod that the auditor did not know before.
const anyVersion = "0"

// addOrphans adds the orphaned pods: pods that the API server does not have any more although their
// sandboxes may exist, for example because their deletion was forced. It finds them by the records
// of ADD and of repairs, which also define their desired states. An audit removes an orphaned pod
// whose sandbox was searched for and does not exist.
func (a *Auditor) addOrphans(ctx context.Context) {
	a.warn("the records of ADD cannot be read", a.records.Refresh())
	var recorded []source.Ref
	for _, r := range a.records.All() {
		if a.Compare && r.Redirect != nil && r.Pod.UID != "" {
			recorded = append(recorded, source.Ref(r.Pod))
		}
	}
	for _, ref := range append(recorded, a.repairs.pods()...) {
		a.mu.Lock()
		known := a.pods[ref.UID] != nil
		a.mu.Unlock()
		if known || a.hasMirrorPod(ctx, ref) {
			continue
		}
		p := newPod()
		p.existed = true
		p.item = podcache.Item{Ref: ref, ResourceVersion: anyVersion}
		a.mu.Lock()
		if a.pods[ref.UID] == nil {
			a.pods[ref.UID] = p
			a.orphan(ref.UID)
		}
		a.mu.Unlock()
	}
}

// locateOrphan returns the location of an orphaned pod. If several orphaned pods have the name, it
// returns the location of the pod with the latest ADD among those whose sandbox exists. If the pod
// may be in ambient mode, it returns an error of the kind Unavailable: pods enter and leave this
// mode while they run, and only the API server has the labels that decide.
func (a *Auditor) locateOrphan(
	ctx context.Context, namespace, name string,
) (agent.Location, error) {
	pods := a.recordedPods(namespace, name)
	if len(pods) == 0 {
		return agent.Location{}, source.WithKind(source.NotFound, fmt.Errorf("the API server has "+
			"no pod %s/%s on this node, and the agent has no record of a deleted pod with this name",
			namespace, name))
	}
	var reasons error
	for _, ref := range pods {
		d := a.recordedState(identityOf(ref), a.records.Of(ref.UID))
		sb, reason := a.sandboxOf(ctx, ref.UID, d.sandboxPod)
		if sb == nil {
			reasons = errors.Join(reasons, reason)
			continue
		}
		if d.redirect == nil && a.Decide.Ambient != nil || d.ambient != nil {
			return agent.Location{}, source.WithKind(source.Unavailable, fmt.Errorf("the API "+
				"server no longer has the pod, but its sandbox exists; whether the pod is in ambient "+
				"mode is unknown; examine its network namespace with --netns %s", sb.Path))
		}
		l := a.location(ref, d)
		l.NetNS, l.Orphaned = sb.Path, true
		l.IPv6Bypass, l.IPv6Unknown = a.ipv6Bypass(nil, d, *sb)
		l.Message += "; the API server no longer has the pod, but its sandbox exists"
		return l, nil
	}
	return agent.Location{}, source.WithKind(source.NotFound, fmt.Errorf("the API server no longer "+
		"has pod %s/%s, and its sandbox is not found: %w", namespace, name, reasons))
}

// recordedPods returns the pods with the name that have a record of ADD or of a repair. Pods with a
// record of ADD come first, in the order of the latest ADD.
func (a *Auditor) recordedPods(namespace, name string) []source.Ref {
	records := a.records.All()
	slices.SortFunc(records, func(x, y *record.Record) int { return y.Time.Compare(x.Time) })
	var pods []source.Ref
	add := func(ref source.Ref) {
		if ref.Namespace == namespace && ref.Name == name && ref.UID != "" &&
			!slices.Contains(pods, ref) {
			pods = append(pods, ref)
		}
	}
	for _, r := range records {
		if r.Decided() {
			add(source.Ref(r.Pod))
		}
	}
	for _, ref := range a.repairs.pods() {
		add(ref)
	}
	return pods
}

// hasMirrorPod reports whether the API server has the mirror pod of a static pod with a record.
func (a *Auditor) hasMirrorPod(ctx context.Context, ref source.Ref) bool {
	item, ok := a.Pods.Item(ref.Namespace, ref.Name)
	if !ok {
		return false
	}
	object, err := a.fetchPod(ctx, item)
	if err != nil {
		return false
	}
	records := a.recordsOf(object)
	return len(records) > 0 && records[0].Pod.UID == ref.UID
}

// orphan marks a pod as orphaned, and schedules an audit of it. The caller holds a.mu.
func (a *Auditor) orphan(uid string) {
	p := a.pods[uid]
	p.orphaned, p.item.PodStatus.Deleted, p.missing = true, true, sandbox.Missing{}
	a.queue.Forget(uid)
	a.queue.Add(uid)
}

// removeOrphan removes the pod with the UID if it is orphaned.
func (a *Auditor) removeOrphan(uid string) {
	a.mu.Lock()
	p := a.pods[uid]
	removed := p != nil && p.orphaned
	if removed {
		a.removePod(uid)
	}
	a.mu.Unlock()
	if removed {
		a.forget(uid)
	}
}

// removePod removes an orphaned pod from the auditor's maps. The caller holds a.mu.
func (a *Auditor) removePod(uid string) {
	if watched := a.pods[uid].watchedNetNS; a.byNetNS[watched] == uid {
		delete(a.byNetNS, watched)
	}
	delete(a.pods, uid)
}
