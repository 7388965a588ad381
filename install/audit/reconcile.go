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
	"github.com/sluice-mesh/sluice/rules"
)

// errorPause is the time before the next visit of a pod after an error.
const errorPause = 15 * time.Second

// A reconciliation compares one pod with its desired state, once, and acts on the result.
type reconciliation struct {
	*Auditor
	*pod
	uid     string
	item    podcache.Item
	sandbox *sandbox.Sandbox
	pending pendingEvents
	now     time.Time

	state    State
	effect   foreign.Verdict // of rules of others; empty if it was not asked for
	compared bool
	used     time.Duration
	again    time.Time // when to come again; zero for when something happens
}

// reconcile reconciles a pod. It is called for a pod by one goroutine at a time.
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
		a.plan(uid, until)
		a.mu.Unlock()
		return
	}
	p.pending = pendingEvents{}
	a.mu.Unlock()

	before := a.Used()
	v.run(ctx)
	v.used = a.Used() - before // of the whole process, and so no less than is the visit's

	if gone := a.end(v); gone {
		a.forget(uid) // again, since the visit may have kept something
	}
}

// end stores the results of a visit, and reports whether the pod was deleted meanwhile.
func (a *Auditor) end(v *reconciliation) (gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[v.uid]
	if p != v.pod {
		return p == nil
	}
	p.state, p.foreign = v.state, v.effect
	p.visitPause.note(v.used, time.Now())
	if v.compared {
		p.audited = v.now
	}
	if !v.again.IsZero() {
		a.plan(v.uid, v.again)
	}
	return false
}

func (v *reconciliation) run(ctx context.Context) {
	if v.item.PodStatus.Deleted || v.item.PodStatus.Over() {
		return
	}
	before := v.pod.records
	if err := v.updateDesired(ctx, v.pod, v.item); err != nil {
		v.failUnderstanding(ctx, err)
		return
	}
	if v.desired.decision.Outcome != decide.Redirect {
		return
	}
	if !slices.Equal(before, v.pod.records) {
		v.lose() // it may have another sandbox now
	}
	if !v.enters() {
		if v.desired.origin == decided {
			v.applyPolicy(ctx, time.Time{})
		}
		return
	}
	if !v.Compare && v.desired.origin != decided {
		v.checkAfterRepair(ctx)
		return
	}
	if ns := v.enter(ctx); ns != nil {
		defer func() { _ = ns.Close() }()
		v.look(ctx, ns)
	}
}

// failUnderstanding handles a pod whose desired state is unknown. It counts as a mesh pod unless it
// was known not to be one.
func (v *reconciliation) failUnderstanding(ctx context.Context, err error) {
	v.again = v.now.Add(errorPause)
	// then it will soon be known to have gone
	if ctx.Err() != nil || source.IsNotFound(err) || source.IsReplaced(err) {
		return
	}
	if v.version == "" || v.desired.decision.Outcome == decide.Redirect {
		v.failed(err)
	}
}

// enter opens the pod's namespace and subscribes to its events. It returns nil if there is none
// now.
func (v *reconciliation) enter(ctx context.Context) Namespace {
	if v.sandbox == nil {
		v.locate(ctx)
		return nil
	}
	ns, err := v.Open(*v.sandbox)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			v.Log.Debug("a sandbox is sought again", zap.Stringer("pod", v.item.Ref),
				zap.Error(err))
		}
		v.lose()
		v.locate(ctx)
		return nil
	}
	v.watchNamespace(ns)
	return ns
}

// lose forgets the location of the sandbox.
func (v *reconciliation) lose() {
	v.equal = equal{} // the kernel may give the namespace's number to another
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pod.sandbox == v.sandbox {
		v.pod.sandbox = nil
	}
	v.sandbox = nil
}

// locate requests the sandbox, and meanwhile performs actions that do not need it.
func (v *reconciliation) locate(ctx context.Context) {
	v.mu.Lock()
	isRetried, lookupErr := v.queue.NumRequeues(v.uid) > 0, v.lookupErr
	v.mu.Unlock()
	if isRetried && v.started() {
		v.state = Unknown
		v.unaudited(lookupErr)
		if v.desired.origin == decided {
			v.applyPolicy(ctx, time.Time{})
		}
	}
	v.locator.request(v.uid, sandbox.Pod{
		Namespace: v.item.Namespace, Name: v.item.Name, UID: v.desired.sandboxUID,
	})
}

// watchNamespace subscribes to changes in the namespace. It precedes the comparison, so that no
// change is missed.
func (v *reconciliation) watchNamespace(ns Namespace) {
	v.mu.Lock()
	events := v.events
	if v.pods[v.uid] == v.pod {
		// The inode number of a namespace that has ended may be in use by another pod.
		if v.watched != v.sandbox.ID && v.homes[v.watched] == v.uid {
			delete(v.homes, v.watched)
		}
		v.watched = v.sandbox.ID
		v.homes[v.watched] = v.uid
	}
	v.mu.Unlock()
	v.listens = false
	if events == nil {
		return
	}
	if err := events.Add(ns.NS()); err == nil {
		v.listens = true
	} else {
		v.Log.Debug("a pod is visited by the timer only", zap.Stringer("pod", v.item.Ref),
			zap.Error(err))
	}
}

// look compares the actual and the desired state of the pod, and acts on the result.
func (v *reconciliation) look(ctx context.Context, ns Namespace) {
	v.again = v.nextTurn()
	if v.early() {
		return
	}
	switch err := v.addParameters(ctx, v.pod, v.item, ns); {
	case errors.Is(err, errNoAddress):
		// The addresses are not assigned yet, or the sandbox is being removed, as its record
		// already was.
		v.state, v.again = Unknown, v.now.Add(errorPause)
		return
	case err != nil:
		v.impossible(err)
		return
	}
	start := time.Now()
	found, err := v.compare(ns)
	v.Metrics.Observe(metrics.AuditDuration(), time.Since(start).Seconds())
	switch {
	case err != nil:
		v.failed(err)
	case len(found.Differences) == 0:
		v.Metrics.Count(metrics.Audits(metrics.AuditEqual), 1)
		v.compared = true
		v.desired.backend = found.Backend
		v.unrepaired.reset()
		v.inspect(ns)
		v.checkAfterRepair(ctx)
	default:
		v.Metrics.Count(metrics.Audits(metrics.AuditDrift), 1)
		v.compared = true
		v.differs(ctx, ns, found)
	}
}

// compare compares the namespace with the desired state. If it was equal at the last visit and the
// kernel has generation IDs, only these are compared.
func (v *reconciliation) compare(ns Namespace) (found compat.Comparison, err error) {
	last := v.equal
	v.equal = equal{}
	rs, err := rules.Compile(*v.desired.redirect)
	if err != nil {
		return found, err
	}
	if last.in == v.sandbox.ID && last.redirect == v.desired.redirect {
		found, err = ns.CheckSince(last.found, rs)
	} else {
		found, err = ns.Check(v.desired.backend, rs)
	}
	if err == nil && len(found.Differences) == 0 {
		v.equal = equal{v.sandbox.ID, v.desired.redirect, found}
	}
	return found, err
}

// early reports whether the pod's ADD may be running and its addresses not assigned yet, so that it
// does not count as late. Processes of the pod may exist before that. Other sources contain a
// sandbox only after its ADD.
func (v *reconciliation) early() bool {
	return v.desired.origin == decided && v.sandbox.Source == sandbox.Proc && !v.started()
}

// started reports whether the pod's status shows a sandbox with a network.
func (v *reconciliation) started() bool {
	return v.desired.up || v.item.PodStatus.Phase == "Running"
}

// failed handles a namespace that cannot be read.
func (v *reconciliation) failed(err error) {
	v.Metrics.Count(metrics.Audits(metrics.AuditError), 1)
	v.unaudited(err)
	v.state, v.again = Unknown, v.now.Add(errorPause)
}

// unaudited logs the reason why the state of a pod is unknown.
func (v *reconciliation) unaudited(why error) {
	if _, due := v.isDue(auditFailed); due {
		v.Log.Warn("a pod cannot be audited", zap.Stringer("pod", v.item.Ref), zap.Error(why))
	}
}

// impossible handles a pod whose desired state cannot be determined.
func (v *reconciliation) impossible(err error) {
	v.Metrics.Count(metrics.Audits(metrics.AuditError), 1)
	v.state, v.compared, v.again = Unprotected, true, v.now.Add(errorPause)
	v.recordEvent(notRedirected, "the pod is not redirected, and cannot be: "+err.Error())
}

// turns is the number of times in an interval at which pods are visited without an event. This
// spreads the visits, and visits at the same time share the cost of waking a thread and filling
// caches, which is several times that of a visit.
const turns = 6

// nextTurn returns the time of the next visit without an event: one of the times in the interval,
// always the same for a pod. They are relative to the start of the auditor on the monotonic clock,
// which is never set back.
func (v *reconciliation) nextTurn() time.Time {
	if !v.Compare {
		return time.Time{}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(v.uid))
	turn := v.begin.Add(
		v.now.Sub(v.begin).Truncate(v.Interval) + v.Interval/turns*time.Duration(h.Sum64()%turns))
	if !turn.After(v.now) {
		turn = turn.Add(v.Interval)
	}
	return turn
}

// backendOf returns the backend for a repair: the one that held the rules, if known.
func (v *reconciliation) backendOf(found compat.Comparison) compat.BackendName {
	if v.desired.origin == decided {
		return v.Backend
	}
	return found.Backend
}
