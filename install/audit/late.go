package audit

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/agent/cluster"
	"github.com/sluice-mesh/sluice/install/repair"
)

// late is for a pod that has nothing, and of whose ADD nothing is known, or only that it could not read the pod: it started before the
// plugin was there, or while nobody could be asked.
func (v *visit) late(ctx context.Context, ns Namespace) {
	others, err := ns.Istio()
	if err != nil {
		v.failed(err)
		return
	}
	if len(others) > 0 {
		v.state = Redirected
		v.Log.Debug("a pod is left to Istio's rules", zap.Stringer("pod", v.item.Ref), zap.Int("rules", len(others)))
		return
	}
	pod, err := v.policyPod(ctx, v.item)
	if err != nil {
		v.again = v.now.Add(errorPause)
		return
	}
	if !v.Policy.InPlace || !v.Policy.Selects(pod) {
		v.tell(notRedirected, v.cause()+", and it has no redirection: delete it to be made anew, or let the agent repair it (repair.repairPods)")
		v.instead(ctx, time.Time{})
		return
	}
	if at := v.trouble.mends.next(); at.After(v.now) {
		v.again = at
		return
	}
	v.inPlace(ctx, ns)
}

// cause is why the pod has no redirection. A record that decides nothing is of an ADD that could not read the pod.
func (v *visit) cause() string {
	if len(v.pod.records) > 0 {
		return "the plugin could not read the pod when it started"
	}
	return "the pod started before the plugin was on the node"
}

// inPlace gives a late pod its redirection.
func (v *visit) inPlace(ctx context.Context, ns Namespace) {
	v.trouble.mends.note(v.now)
	left, err := v.apply(ns, v.Engine, compat.Comparison{})
	if err != nil || len(left) > 0 {
		v.countRace(repair.InPlace, "error")
		v.again = v.trouble.mends.next()
		why := "what is left of it cannot be mended by the agent: " + oneLine(left)
		if err != nil {
			why = err.Error()
		}
		v.tell(repairFailed, v.cause()+", and it cannot be given its redirection, so delete it to be made anew: "+why)
		v.instead(ctx, time.Time{})
		return
	}
	v.state = Redirected
	v.countRace(repair.InPlace, "success")
	v.Metrics.Observe("sluice_repair_duration_seconds", time.Since(v.now).Seconds(), "race")
	v.tell(redirectRepaired, v.cause()+"; it has its redirection now")
	v.Log.Info("a pod that started too early is redirected", zap.Stringer("pod", v.item.Ref))
	entry := repair.Entry{
		UID: v.uid, Namespace: v.item.Namespace, Name: v.item.Name,
		Redirect: *v.want.redirect, Engine: v.want.engine, Time: time.Now(),
	}
	v.note("what was repaired is not kept", v.repairs.put(entry))
	v.want.origin, v.want.repaired = repaired, entry.Time
}

// helped looks whether a pod that was repaired in place has failed since. The times of containers have whole seconds.
func (v *visit) helped(ctx context.Context) {
	if v.want.origin == repaired {
		v.instead(ctx, v.want.repaired.Truncate(time.Second).Add(time.Second))
	}
}

// instead does to a pod that has failed since a time what the policy says if it is not, or cannot be, repaired in place.
func (v *visit) instead(ctx context.Context, since time.Time) {
	if v.acted == v.item.ResourceVersion || !v.Policy.Any() || !v.Policy.Broken(v.item.Life, since) {
		return
	}
	pod, err := v.policyPod(ctx, v.item)
	if err != nil || !v.Policy.Selects(pod) {
		return
	}
	action := v.Policy.Instead(pod)
	if action == "" {
		if v.want.origin == repaired {
			v.tell(repairFailed, "the pod was given its redirection, and fails nevertheless: look at its validation container")
		}
		return
	}
	v.mu.Lock()
	silent := v.silent
	v.mu.Unlock()
	for _, at := range []time.Time{silent, v.acts.next()} {
		if at.After(time.Now()) {
			v.again = earlier(v.again, at)
			return
		}
	}
	v.acts.note(v.now)
	v.act(ctx, action)
}

const (
	// actTime bounds one question to the API server, for which other pods may have to wait.
	actTime = 3 * time.Second
	// actSilence is for how long nothing is asked after one that was not answered.
	actSilence = 30 * time.Second
)

// act deletes or labels a pod.
func (v *visit) act(ctx context.Context, action repair.Action) {
	bounded, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	name := cluster.Name{Namespace: v.item.Namespace, Name: v.item.Name}
	reason, text := "DeleteBrokenPod", v.cause()+"; it is deleted to be made anew"
	var err error
	if action == repair.Delete {
		err = v.Cluster.DeletePod(bounded, name, v.item.UID, v.item.ResourceVersion)
	} else {
		reason, text = "LabelBrokenPod", v.cause()+", and it has no redirection; it is labelled"
		err = v.Cluster.LabelPod(bounded, name, v.item.UID, v.Policy.LabelKey, v.Policy.LabelValue)
	}
	switch {
	case err == nil:
		v.acted = v.item.ResourceVersion
		v.countRace(action, "success")
		v.tell(reason, text)
	case cluster.IsNotFound(err), cluster.IsConflict(err):
		// It has gone, or has changed; then it is visited because of that.
		v.acted = v.item.ResourceVersion
		v.Metrics.Count("istio_cni_repair_pods_repaired_total", 1, string(action), "skip")
	default:
		v.countRace(action, "error")
		v.again = earlier(v.again, v.acts.next())
		if !cluster.IsStatus(err) {
			v.mu.Lock()
			v.silent = time.Now().Add(actSilence)
			v.mu.Unlock()
		}
		v.Log.Warn("a broken pod stays", zap.Stringer("pod", v.item.Ref), zap.String("action", string(action)), zap.Error(err))
	}
}

// countRace counts what was done about a late pod, under both names.
func (v *visit) countRace(action repair.Action, result string) {
	v.Metrics.Count("sluice_repairs_total", 1, "race", string(action), result)
	istio := "success"
	if result == "error" {
		istio = "fail"
	}
	v.Metrics.Count("istio_cni_repair_pods_repaired_total", 1, string(action), istio)
}

// earlier is the first of two times, of which one may be none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
