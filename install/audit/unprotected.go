package audit

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// startedWithoutPlugin reports whether the sandbox, which has no rules, started without the plugin.
// If it did not, the rules of its ADD or of an earlier repair were removed. A record of an ADD or
// of a repair does not apply to a sandbox that was created later. An orphaned pod gets no new
// sandbox.
func (r *auditRun) startedWithoutPlugin() bool {
	switch r.desired.origin {
	case fromPod:
		return true
	case fromADD:
		return !r.orphaned && !r.hasRecord()
	case fromRepair:
		return r.sandbox.Created.After(r.desired.repairedAt)
	}
	return false
}

// hasRecord reports whether a record of ADD may be the record of the pod's sandbox. If the runtime
// removed an earlier sandbox without calling DEL, a record of another container remains. The
// container is known only if the sandbox was found in the runtime's cache; a sandbox that was found
// by a record has one.
func (r *auditRun) hasRecord() bool {
	return slices.ContainsFunc(r.pod.records, func(rec *record.Record) bool {
		return r.sandbox == nil || r.sandbox.Source != sandbox.Runtime ||
			rec.ContainerID == r.sandbox.ContainerID
	})
}

// checkStart handles a pod with a record of ADD or of a repair while comparisons are disabled. If a
// later sandbox of the pod started without the plugin and has no rules, it calls onUnprotected;
// otherwise it only calls checkAfterRepair. ns is nil if the sandbox cannot be entered now.
func (r *auditRun) checkStart(ctx context.Context, ns Namespace) {
	if ns == nil || !r.startedWithoutPlugin() {
		r.checkAfterRepair(ctx)
		return
	}
	switch noRules, err := ns.HasNoRules(); {
	case err != nil:
		r.onUnreadable(err)
	case noRules:
		r.state = Unprotected
		r.onUnprotected(ctx, ns)
	default:
		r.checkAfterRepair(ctx)
	}
}

// onUnprotected handles a pod that has no rules of Sluice, and for whose sandbox no ADD has made a
// decision. Either the sandbox started before the plugin was installed, or the runtime did not call
// the plugin, or neither the agent nor the API server replied to the plugin.
func (r *auditRun) onUnprotected(ctx context.Context, ns Namespace) {
	istioRules, err := ns.Istio()
	if err != nil {
		r.onUnreadable(err)
		return
	}
	if len(istioRules) > 0 {
		r.Log.Debug("a pod is not repaired, because it contains Istio's rules",
			zap.Stringer("pod", r.item.Ref), zap.Int("rules", len(istioRules)))
		r.inspectIstio(ctx, ns)
		return
	}
	r.noteBypass()
	pod, err := r.policyPod(ctx)
	if err != nil {
		r.nextAuditAt = r.now.Add(errorBackoff)
		return
	}
	if !r.Policy.InPlace || !r.Policy.Selects(pod) {
		r.recordEvent(reasonNotRedirected, r.cause()+"; the pod has no redirection: "+
			r.recreationInstruction()+", or let the agent repair it (repair.repairPods)")
		r.applyPolicy(ctx, time.Time{})
		return
	}
	if at, _ := r.unrepaired.nextRepair("", r.now); at.After(r.now) {
		r.nextAuditAt = at
		return
	}
	r.repairInPlace(ctx, ns)
}

// cause returns the reason why the pod has no redirection. If there is a record of ADD, it contains
// no decision, because ADD could not read the pod.
func (r *auditRun) cause() string {
	if r.hasRecord() {
		return "the plugin could not read the pod when the pod started"
	}
	return r.missingRecordCause().Message
}

// missingRecordCause returns the reason why the pod has no record of an ADD, according to the
// creation time of its sandbox.
func (r *auditRun) missingRecordCause() bypass.Cause {
	if r.sandbox == nil {
		return r.Bypass.Explain("", time.Time{})
	}
	return r.Bypass.Explain(r.sandbox.Pod.UID, r.sandbox.Created)
}

// noteBypass records and counts a pod that started without the plugin although the chain was
// complete.
func (r *auditRun) noteBypass() {
	if !r.hasRecord() && r.missingRecordCause().Kind == bypass.Bypassed {
		r.Auditor.noteBypass(r.item.Namespace+"/"+r.item.Name, r.uid, r.sandbox.Created)
	}
}

func (a *Auditor) noteBypass(pod, uid string, created time.Time) {
	isNew, err := a.Bypass.NoteBypass(pod, uid, created)
	a.warn("the bypass of the plugin cannot be stored", err)
	if isNew {
		a.Metrics.Count(metrics.BypassedPods(), 1)
	}
}

// NoteSandbox records and counts a running pod in ambient mode whose sandbox was created without
// the plugin although the chain was complete. Only the runtime's cache shows that the ADD of the
// chain has ended; sandboxes from other sources are ignored.
func (a *Auditor) NoteSandbox(s sandbox.Sandbox) {
	if s.Source != sandbox.Runtime {
		return
	}
	if err := a.records.Refresh(); err != nil {
		a.warn("the records of ADD cannot be read", err)
		return
	}
	hasRecord := slices.ContainsFunc(a.records.Of(s.Pod.UID), func(rec *record.Record) bool {
		return rec.ContainerID == s.ContainerID
	})
	if !hasRecord && a.Bypass.Explain(s.Pod.UID, s.Created).Kind == bypass.Bypassed {
		a.noteBypass(s.Pod.String(), s.Pod.UID, s.Created)
	}
}

// repairInPlace redirects a pod that has no redirection.
func (r *auditRun) repairInPlace(ctx context.Context, ns Namespace) {
	r.unrepaired.repairs.ReserveN(r.now, 1)
	unrepairable, err := r.apply(ns, r.Backend, compat.Comparison{})
	isIncomplete := errors.As(err, new(incompleteRepairError))
	if err != nil && !isIncomplete || len(unrepairable) > 0 {
		r.countUnprotected(repair.InPlace, metrics.Failure)
		r.onFailedRepair()
		reason := "the agent cannot repair these differences: " + joinDifferences(unrepairable)
		if err != nil {
			reason = err.Error()
		}
		r.recordEvent(reasonRepairFailed, r.cause()+"; "+r.recreationInstruction()+
			", because the rules cannot be applied: "+reason)
		r.applyPolicy(ctx, time.Time{})
		return
	}
	description := r.cause() + "; the pod is redirected now" + r.endConnections(ns)
	if isIncomplete {
		r.countUnprotected(repair.InPlace, metrics.Failure)
		r.nextAuditAt = r.now.Add(errorBackoff)
		r.recordEvent(reasonRepairFailed, description+"; but the repair is incomplete: "+err.Error())
	} else {
		r.countUnprotected(repair.InPlace, metrics.Success)
		r.Metrics.Observe(metrics.RepairDuration(r.repairCause()), time.Since(r.now).Seconds())
		r.recordEvent(reasonRepaired, description)
	}
	r.Log.Info("a pod without redirection is redirected now",
		zap.Stringer("pod", r.item.Ref), zap.String("reason", r.cause()))
	entry := repair.Entry{
		UID: r.uid, Namespace: r.item.Namespace, Name: r.item.Name,
		Redirect: *r.desired.redirect, Backend: r.desired.backend, Time: time.Now(),
	}
	r.warn("the repair cannot be stored", r.repairs.put(entry))
	r.desired.origin, r.desired.repairedAt = fromRepair, entry.Time
	r.inspectForeign(ctx, ns)
}

// checkAfterRepair applies the policy to a pod that was repaired in place and has failed since. The
// time of the repair is rounded up, because the times of containers have a resolution of a second.
func (r *auditRun) checkAfterRepair(ctx context.Context) {
	if r.desired.origin == fromRepair {
		r.applyPolicy(ctx, r.desired.repairedAt.Truncate(time.Second).Add(time.Second))
	}
}

// applyPolicy deletes or labels the pod, as the policy specifies, if the pod has failed after the
// given time. The zero time includes all failures. If the policy specifies no action for a pod that
// failed after a repair, applyPolicy records an event.
func (r *auditRun) applyPolicy(ctx context.Context, since time.Time) {
	if r.actedVersion == r.item.ResourceVersion || r.item.PodStatus.Deleted ||
		!r.Policy.IsEnabled() || !r.Policy.IsBroken(r.item.PodStatus, since) {
		return
	}
	pod, err := r.policyPod(ctx)
	if err != nil || !r.Policy.Selects(pod) {
		return
	}
	action := r.Policy.Fallback(pod)
	if action == "" {
		if r.desired.origin == fromRepair {
			r.recordEvent(reasonRepairFailed,
				"the pod was redirected and still fails: check its validation container")
		}
		return
	}
	r.mu.Lock()
	noRequestsUntil := r.noRequestsUntil
	r.mu.Unlock()
	for _, at := range []time.Time{noRequestsUntil, r.action.next} {
		if at.After(time.Now()) {
			r.nextAuditAt = earliest(r.nextAuditAt, at)
			return
		}
	}
	r.actionBackoff.recordAttempt(r.uid, &r.action, r.now)
	r.deleteOrLabel(ctx, action)
}

const (
	// actionTimeout is the time limit of a request to the API server. It is short, because other
	// pods may wait for the request.
	actionTimeout = 3 * time.Second
	// actionPause is the time without requests after a request that got no reply.
	actionPause = 30 * time.Second
)

// deleteOrLabel deletes or labels a pod.
func (r *auditRun) deleteOrLabel(ctx context.Context, action repair.Action) {
	ctx, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	name := cluster.Name{Namespace: r.item.Namespace, Name: r.item.Name}
	reason, text := "DeleteBrokenPod", r.cause()+"; the pod is deleted so that it is created again"
	var err error
	if action == repair.Delete {
		err = r.Cluster.DeletePod(ctx, name, r.item.UID, r.item.ResourceVersion)
	} else {
		reason, text = "LabelBrokenPod", r.cause()+"; the pod has no redirection, and is labeled"
		err = r.Cluster.LabelPod(ctx, name, r.item.UID, r.Policy.LabelKey, r.Policy.LabelValue)
	}
	switch {
	case err == nil:
		r.actedVersion = r.item.ResourceVersion
		r.countUnprotected(action, metrics.Success)
		r.recordEvent(reason, text)
	case cluster.IsNotFound(err), cluster.IsConflict(err):
		// The pod was deleted or has changed, which triggers another audit.
		r.actedVersion = r.item.ResourceVersion
		r.Metrics.Count(metrics.IstioPodsRepaired(metrics.Action(action), metrics.PodSkipped), 1)
	default:
		r.countUnprotected(action, metrics.Failure)
		r.nextAuditAt = earliest(r.nextAuditAt, r.action.next)
		if !cluster.HasReply(err) {
			r.mu.Lock()
			r.noRequestsUntil = time.Now().Add(actionPause)
			r.mu.Unlock()
		}
		r.Log.Warn("cannot delete or label a broken pod", zap.Stringer("pod", r.item.Ref),
			zap.String("action", string(action)), zap.Error(err))
	}
}

// repairCause returns the value of the metric label "cause" for a pod without redirection.
func (r *auditRun) repairCause() metrics.Cause {
	if r.missingRecordCause().Kind == bypass.Bypassed {
		return metrics.CauseBypass
	}
	return metrics.CauseRace
}

// countUnprotected counts an action on a pod without redirection, in Sluice's metric and in the
// metric of istio-cni.
func (r *auditRun) countUnprotected(action repair.Action, result metrics.Result) {
	r.Metrics.Count(metrics.Repairs(r.repairCause(), metrics.Action(action), result), 1)
	istioResult := metrics.PodSuccess
	if result == metrics.Failure {
		istioResult = metrics.PodFailed
	}
	r.Metrics.Count(metrics.IstioPodsRepaired(metrics.Action(action), istioResult), 1)
}

// earliest returns the earlier of two times, or b if a is zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
