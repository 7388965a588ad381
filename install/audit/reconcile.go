package audit

import (
	"context"
	"errors"
	"hash/fnv"
	"io/fs"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/sandbox"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// errorBackoff is the time before the next visit of a pod after an error.
const errorBackoff = 15 * time.Second

// A reconciliation compares a pod with its desired state and acts on the result. It is also called
// a visit of the pod.
type reconciliation struct {
	*Auditor
	*pod
	uid     string
	item    podcache.Item
	sandbox *sandbox.Sandbox
	pending pendingEvents
	now     time.Time

	state         State
	effect        foreign.Verdict // of foreign rules; empty if it was not determined
	hasCompared   bool
	processorTime time.Duration // used by the visit, or more: see reconcile
	revisitAt     time.Time     // time of the next visit without an event; zero for none
}

// reconcile visits a pod. It must not be called for one pod by two goroutines at the same time.
func (a *Auditor) reconcile(ctx context.Context, uid string) {
	a.mu.Lock()
	p := a.pods[uid]
	if p == nil {
		a.mu.Unlock()
		return
	}
	v := &reconciliation{
		Auditor: a, pod: p, uid: uid, item: p.item, sandbox: p.sandbox, pending: p.pending,
		now: time.Now(),
	}
	if until := p.visitPause.until; until.After(v.now) {
		a.scheduleVisit(uid, until)
		a.mu.Unlock()
		return
	}
	p.pending = pendingEvents{}
	a.mu.Unlock()

	before := a.ProcessorTime()
	v.run(ctx)
	v.processorTime = a.ProcessorTime() - before // of the whole process: an upper bound for the visit

	if deleted := a.storeResults(v); deleted {
		a.forget(uid) // a second time, because the visit may have stored state
	}
}

// storeResults stores the results of a visit, and reports whether the pod was deleted meanwhile.
func (a *Auditor) storeResults(v *reconciliation) (deleted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[v.uid]
	if p != v.pod {
		return p == nil
	}
	p.state, p.foreign = v.state, v.effect
	p.visitPause.note(v.processorTime, time.Now())
	if v.hasCompared {
		p.audited = v.now
	}
	if !v.revisitAt.IsZero() {
		a.scheduleVisit(v.uid, v.revisitAt)
	}
	return false
}

// run determines the desired state of the pod, and audits the pod if it should be redirected.
func (v *reconciliation) run(ctx context.Context) {
	if v.item.PodStatus.Deleted || v.item.PodStatus.HasEnded() {
		return
	}
	if p := v.ambientPod(v.uid); p != nil {
		defer p.Release()
		v.auditAmbient(ctx, p)
		return
	}
	before := v.pod.records
	if err := v.updateDesired(ctx, v.pod, v.item); err != nil {
		v.onUnknownDesired(ctx, err)
		return
	}
	if v.desired.decision.Outcome != decide.Redirect {
		return
	}
	if !slices.Equal(before, v.pod.records) {
		v.discardSandbox() // the pod may have a new sandbox
	}
	if !v.entersNamespaces() {
		if v.desired.origin == fromPod {
			v.applyPolicy(ctx, time.Time{})
		}
		return
	}
	if !v.Compare && v.desired.origin != fromPod {
		v.checkAfterRepair(ctx)
		return
	}
	if ns := v.enter(ctx); ns != nil {
		defer func() { _ = ns.Close() }()
		v.audit(ctx, ns)
	}
}

// onUnknownDesired handles a pod whose desired state cannot be determined now. It reports the pod
// unless the last decision was not to redirect it.
func (v *reconciliation) onUnknownDesired(ctx context.Context, err error) {
	v.revisitAt = v.now.Add(errorBackoff)
	// The pod was deleted, or the agent ends.
	if ctx.Err() != nil || source.IsNotFound(err) || source.IsReplaced(err) {
		return
	}
	if v.version == "" || v.desired.decision.Outcome == decide.Redirect {
		v.onUnreadable(err)
	}
}

// enter opens the pod's namespace and subscribes to its events. It returns nil if the pod has no
// known sandbox.
func (v *reconciliation) enter(ctx context.Context) Namespace {
	if v.sandbox == nil {
		v.requestSandbox(ctx)
		return nil
	}
	ns, err := v.Open(*v.sandbox)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			v.Log.Debug("a sandbox is searched for again", zap.Stringer("pod", v.item.Ref),
				zap.Error(err))
		}
		v.discardSandbox()
		v.requestSandbox(ctx)
		return nil
	}
	v.watchNamespace(ns)
	return ns
}

// discardSandbox discards the location of the sandbox.
func (v *reconciliation) discardSandbox() {
	v.lastEqual = lastEqual{} // the kernel may reuse the namespace's inode number
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pod.sandbox == v.sandbox {
		v.pod.sandbox = nil
	}
	v.sandbox = nil
}

// requestSandbox requests a search for the sandbox, and performs actions that do not need it.
func (v *reconciliation) requestSandbox(ctx context.Context) {
	v.mu.Lock()
	isRetried, lookupErr := v.queue.NumRequeues(v.uid) > 0, v.lookupErr
	v.mu.Unlock()
	if isRetried && v.hasStarted() {
		v.state = Unknown
		v.logUnknownState(lookupErr)
		if v.desired.origin == fromPod {
			v.applyPolicy(ctx, time.Time{})
		}
	}
	v.locator.request(v.uid, sandbox.Pod{
		Namespace: v.item.Namespace, Name: v.item.Name, UID: v.desired.sandboxUID,
	})
}

// watchNamespace subscribes to changes of rules in the network namespace. It must be called before
// the comparison, so that no change is missed.
func (v *reconciliation) watchNamespace(ns Namespace) {
	v.mu.Lock()
	events := v.events
	if v.pods[v.uid] == v.pod {
		// The kernel may have given the inode number of the last namespace to another pod.
		if v.watched != v.sandbox.ID && v.byNetNS[v.watched] == v.uid {
			delete(v.byNetNS, v.watched)
		}
		v.watched = v.sandbox.ID
		v.byNetNS[v.watched] = v.uid
	}
	v.mu.Unlock()
	v.subscribed = false
	if events == nil {
		return
	}
	if err := events.Add(ns.NS()); err == nil {
		v.subscribed = true
	} else {
		v.Log.Debug("cannot watch a pod's rules; it is visited only at the audit interval",
			zap.Stringer("pod", v.item.Ref), zap.Error(err))
	}
}

// audit compares the actual and the desired state of the pod, and acts on the result.
func (v *reconciliation) audit(ctx context.Context, ns Namespace) {
	v.revisitAt = v.nextIntervalVisit()
	if v.mayADDBeRunning() {
		return
	}
	switch err := v.ensureParameters(ctx, v.pod, v.item, ns); {
	case errors.Is(err, errNoAddress):
		v.state, v.revisitAt = Unknown, v.now.Add(errorBackoff)
		return
	case err != nil:
		v.onInvalidPod(err)
		return
	}
	start := time.Now()
	found, err := v.compare(ns)
	v.Metrics.Observe(metrics.AuditDuration(), time.Since(start).Seconds())
	switch {
	case err != nil:
		v.onUnreadable(err)
	case len(found.Differences) == 0:
		v.Metrics.Count(metrics.Audits(metrics.AuditEqual), 1)
		v.hasCompared = true
		v.desired.backend = found.Backend
		v.unrepaired.reset()
		v.inspectForeign(ns)
		v.checkAfterRepair(ctx)
	default:
		v.Metrics.Count(metrics.Audits(metrics.AuditDrift), 1)
		v.hasCompared = true
		v.onDifferences(ctx, ns, found)
	}
}

// compare compares the network namespace with the desired state. If they were equal at the last
// visit and the kernel's generation ID has not changed, the rules are not read, except for a pod
// with counters.
func (v *reconciliation) compare(ns Namespace) (found compat.Comparison, err error) {
	last := v.lastEqual
	v.lastEqual = lastEqual{}
	rs, err := v.rulesets.ruleset(v.desired.redirection)
	if err != nil {
		return found, err
	}
	if last.netns == v.sandbox.ID && last.redirection == v.desired.redirection {
		if v.countsPackets() {
			last.found.Snapshot.Generation = 0 // makes CheckSince read the rules
		}
		found, err = ns.CheckSince(last.found, rs)
	} else {
		found, err = ns.Check(v.desired.backend, rs)
	}
	if err == nil && len(found.Differences) == 0 {
		v.lastEqual = lastEqual{v.sandbox.ID, v.desired.redirection, found}
		v.readCounters(found.Packets)
	}
	return found, err
}

// mayADDBeRunning reports whether the pod's ADD may be running, so that its addresses may not be
// assigned yet and it does not count as unprotected. This is possible if the sandbox was found in
// /proc, because processes of the pod may exist before ADD ends. Other sources contain a sandbox
// only after its ADD.
func (v *reconciliation) mayADDBeRunning() bool {
	return v.desired.origin == fromPod && v.sandbox.Source == sandbox.Proc && !v.hasStarted()
}

// hasStarted reports whether the pod's status shows a sandbox with a network.
func (v *reconciliation) hasStarted() bool {
	return v.desired.hasSandbox || v.item.PodStatus.Phase == "Running"
}

// onUnreadable handles a namespace that cannot be read.
func (v *reconciliation) onUnreadable(err error) {
	v.Metrics.Count(metrics.Audits(metrics.AuditError), 1)
	v.logUnknownState(err)
	v.state, v.revisitAt = Unknown, v.now.Add(errorBackoff)
}

// logUnknownState logs the reason why the state of a pod is unknown.
func (v *reconciliation) logUnknownState(cause error) {
	if _, due := v.countOccurrence(auditFailed); due {
		v.Log.Warn("a pod cannot be audited", zap.Stringer("pod", v.item.Ref), zap.Error(cause))
	}
}

// onInvalidPod handles a pod whose desired state cannot be determined.
func (v *reconciliation) onInvalidPod(err error) {
	v.Metrics.Count(metrics.Audits(metrics.AuditError), 1)
	v.state, v.hasCompared, v.revisitAt = Unprotected, true, v.now.Add(errorBackoff)
	v.recordEvent(notRedirected, "the pod cannot be redirected: "+err.Error())
}

// visitTimes is the number of times in an interval at which pods are visited without an event.
// Visits at the same time share the cost of waking a thread and filling caches. This cost is
// several times the cost of a visit.
const visitTimes = 6

// nextIntervalVisit returns the time of the next visit without an event. A hash of the pod's UID
// selects one of visitTimes times in the interval. The times are relative to the start of the
// auditor on the monotonic clock, which is never set back.
func (v *reconciliation) nextIntervalVisit() time.Time {
	if !v.Compare {
		return time.Time{}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(v.uid))
	offset := v.Interval / visitTimes * time.Duration(h.Sum64()%visitTimes)
	at := v.begin.Add(v.now.Sub(v.begin).Truncate(v.Interval) + offset)
	if !at.After(v.now) {
		at = at.Add(v.Interval)
	}
	return at
}

// backendOf returns the backend for a repair: the backend that contains the rules, if known.
func (v *reconciliation) backendOf(found compat.Comparison) compat.BackendName {
	if v.desired.origin == fromPod {
		return v.Backend
	}
	return found.Backend
}
