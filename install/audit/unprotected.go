package audit

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/bypass"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/repair"
)

// onUnprotected handles a pod that has no rules and no record of a successful ADD: the pod started
// before the plugin was installed, or the runtime did not call the plugin, or neither the agent nor
// the API server replied to the plugin.
func (v *reconciliation) onUnprotected(ctx context.Context, ns Namespace) {
	istioRules, err := ns.Istio()
	if err != nil {
		v.onUnreadable(err)
		return
	}
	if len(istioRules) > 0 {
		v.Log.Debug("a pod is not repaired, because it contains Istio's rules",
			zap.Stringer("pod", v.item.Ref), zap.Int("rules", len(istioRules)))
		v.inspectIstio(ns)
		return
	}
	v.noteBypass()
	pod, err := v.policyPod(ctx, v.item)
	if err != nil {
		v.revisitAt = v.now.Add(errorBackoff)
		return
	}
	if !v.Policy.InPlace || !v.Policy.Selects(pod) {
		v.recordEvent(notRedirected, v.cause()+", and it has no redirection: "+
			"delete it so that it is created again, or let the agent repair it (repair.repairPods)")
		v.applyPolicy(ctx, time.Time{})
		return
	}
	if at := v.unrepaired.nextRepair("", v.now); at.After(v.now) {
		v.revisitAt = at
		return
	}
	v.repairInPlace(ctx, ns)
}

// cause returns the reason why the pod has no redirection. If there is a record of ADD, it contains
// no decision, because ADD could not read the pod.
func (v *reconciliation) cause() string {
	if len(v.pod.records) > 0 {
		return "the plugin could not read the pod when it started"
	}
	return v.missingRecordCause().Message
}

// missingRecordCause returns the reason why the plugin was not called for the pod, according to the
// creation time of its sandbox.
func (v *reconciliation) missingRecordCause() bypass.Cause {
	var created time.Time
	if v.sandbox != nil {
		created = v.sandbox.Created
	}
	return v.Bypass.Explain(created)
}

// noteBypass reports a pod that started without the plugin although the chain was complete.
func (v *reconciliation) noteBypass() {
	if len(v.pod.records) > 0 || v.missingRecordCause().Kind != bypass.Bypassed {
		return
	}
	isNew, err := v.Bypass.NoteBypass(v.item.Namespace+"/"+v.item.Name, v.uid, v.sandbox.Created)
	v.warn("the state \"bypassed\" of the runtime cannot be stored", err)
	if isNew {
		v.Metrics.Count(metrics.BypassedPods(), 1)
	}
}

// repairInPlace redirects a pod that started without the plugin.
func (v *reconciliation) repairInPlace(ctx context.Context, ns Namespace) {
	v.unrepaired.repairs.ReserveN(v.now, 1)
	unrepairable, err := v.apply(ns, v.Backend, compat.Comparison{})
	if err != nil || len(unrepairable) > 0 {
		v.countUnprotected(repair.InPlace, metrics.Failure)
		v.onFailedRepair()
		reason := "the agent cannot repair these differences: " + joinDifferences(unrepairable)
		if err != nil {
			reason = err.Error()
		}
		v.recordEvent(repairFailed, v.cause()+
			", and its rules cannot be applied; delete it so that it is created again: "+reason)
		v.applyPolicy(ctx, time.Time{})
		return
	}
	v.countUnprotected(repair.InPlace, metrics.Success)
	v.Metrics.Observe(metrics.RepairDuration(v.repairCause()), time.Since(v.now).Seconds())
	v.recordEvent(redirectRepaired, v.cause()+"; it is redirected now"+v.endConnections(ns))
	v.Log.Info("a pod that started without the plugin is redirected",
		zap.Stringer("pod", v.item.Ref), zap.String("reason", v.cause()))
	entry := repair.Entry{
		UID: v.uid, Namespace: v.item.Namespace, Name: v.item.Name,
		Redirect: *v.desired.redirect, Backend: v.desired.backend, Time: time.Now(),
	}
	v.warn("the repair cannot be stored", v.repairs.put(entry))
	v.desired.origin, v.desired.repairedAt = fromRepair, entry.Time
	v.inspectForeign(ns)
}

// checkAfterRepair applies the policy to a pod that failed after it was repaired in place. The time
// of the repair is rounded up, because the times of containers have a resolution of a second.
func (v *reconciliation) checkAfterRepair(ctx context.Context) {
	if v.desired.origin == fromRepair {
		v.applyPolicy(ctx, v.desired.repairedAt.Truncate(time.Second).Add(time.Second))
	}
}

// applyPolicy applies the policy to a pod that is not repaired in place, if the pod has failed
// since a time.
func (v *reconciliation) applyPolicy(ctx context.Context, since time.Time) {
	if v.actedVersion == v.item.ResourceVersion || !v.Policy.IsEnabled() ||
		!v.Policy.IsBroken(v.item.PodStatus, since) {
		return
	}
	pod, err := v.policyPod(ctx, v.item)
	if err != nil || !v.Policy.Selects(pod) {
		return
	}
	action := v.Policy.Fallback(pod)
	if action == "" {
		if v.desired.origin == fromRepair {
			v.recordEvent(repairFailed,
				"the pod was redirected and still fails: check its validation container")
		}
		return
	}
	v.mu.Lock()
	noRequestsUntil := v.noRequestsUntil
	v.mu.Unlock()
	for _, at := range []time.Time{noRequestsUntil, v.action.next} {
		if at.After(time.Now()) {
			v.revisitAt = earliest(v.revisitAt, at)
			return
		}
	}
	v.actions.note(v.uid, &v.action, v.now)
	v.deleteOrLabel(ctx, action)
}

const (
	// actionTimeout is the time limit of a request to the API server. It is short, because other
	// pods may wait for the request.
	actionTimeout = 3 * time.Second
	// actionPause is the time without requests after a request that got no reply.
	actionPause = 30 * time.Second
)

// deleteOrLabel deletes or labels a pod.
func (v *reconciliation) deleteOrLabel(ctx context.Context, action repair.Action) {
	ctx, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	name := cluster.Name{Namespace: v.item.Namespace, Name: v.item.Name}
	reason, text := "DeleteBrokenPod", v.cause()+"; it is deleted so that it is created again"
	var err error
	if action == repair.Delete {
		err = v.Cluster.DeletePod(ctx, name, v.item.UID, v.item.ResourceVersion)
	} else {
		reason, text = "LabelBrokenPod", v.cause()+", and it has no redirection; it is labeled"
		err = v.Cluster.LabelPod(ctx, name, v.item.UID, v.Policy.LabelKey, v.Policy.LabelValue)
	}
	switch {
	case err == nil:
		v.actedVersion = v.item.ResourceVersion
		v.countUnprotected(action, metrics.Success)
		v.recordEvent(reason, text)
	case cluster.IsNotFound(err), cluster.IsConflict(err):
		// The pod was deleted or has changed, which triggers another visit.
		v.actedVersion = v.item.ResourceVersion
		v.Metrics.Count(metrics.IstioPodsRepaired(metrics.Action(action), metrics.PodSkipped), 1)
	default:
		v.countUnprotected(action, metrics.Failure)
		v.revisitAt = earliest(v.revisitAt, v.action.next)
		if !cluster.HasReply(err) {
			v.mu.Lock()
			v.noRequestsUntil = time.Now().Add(actionPause)
			v.mu.Unlock()
		}
		v.Log.Warn("cannot delete or label a broken pod", zap.Stringer("pod", v.item.Ref),
			zap.String("action", string(action)), zap.Error(err))
	}
}

// repairCause returns the label value for repairs of pods without redirection.
func (v *reconciliation) repairCause() metrics.Cause {
	if v.missingRecordCause().Kind == bypass.Bypassed {
		return metrics.CauseBypass
	}
	return metrics.CauseRace
}

// countUnprotected counts an action on a pod without redirection, in Sluice's metric and in the
// metric of istio-cni.
func (v *reconciliation) countUnprotected(action repair.Action, result metrics.Result) {
	v.Metrics.Count(metrics.Repairs(v.repairCause(), metrics.Action(action), result), 1)
	istioResult := metrics.PodSuccess
	if result == metrics.Failure {
		istioResult = metrics.PodFailed
	}
	v.Metrics.Count(metrics.IstioPodsRepaired(metrics.Action(action), istioResult), 1)
}

// earliest returns the earlier of two times, or b if a is zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
