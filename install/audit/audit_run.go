package audit

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
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

// errorBackoff is the delay of the next audit of a pod after an error, and the time after which a
// missing sandbox or address is reported.
const errorBackoff = 15 * time.Second

// An auditRun is one audit of a pod: it compares the pod with its desired state and acts on the
// result.
type auditRun struct {
	*Auditor
	*pod
	uid string
	// item, orphaned, sandbox and pending are the values of the pod's fields when the audit began.
	item     podcache.Item
	orphaned bool
	sandbox  *sandbox.Sandbox
	pending  pendingEvents
	now      time.Time // when the audit began
	// holdsRuleLock is set while the audit holds RuleLock; see lockRules.
	holdsRuleLock bool
	// subscribed is set if the auditor subscribed to the events of the sandbox's network namespace
	// before the comparison.
	subscribed bool

	// These fields are the result; see storeResults.

	state         State
	ended         bool            // the pod is orphaned, and needs no more audits
	effect        foreign.Verdict // of foreign rules; empty if it was not determined
	hasCompared   bool            // the states were compared, or the pod's parameters are invalid
	needsSandbox  bool            // the pod has started, and its sandbox must be found first
	processorTime time.Duration   // an upper bound; see meteredNamespace
	nextAuditAt   time.Time       // time of the next audit without an event; zero for none
}

// audit audits a pod. It must not be called concurrently for the same pod.
func (a *Auditor) audit(ctx context.Context, uid string) {
	a.mu.Lock()
	p := a.pods[uid]
	if p == nil {
		a.mu.Unlock()
		return
	}
	r := &auditRun{
		Auditor: a, pod: p, uid: uid, item: p.item, orphaned: p.orphaned, sandbox: p.sandbox,
		pending: p.pending, now: time.Now(),
	}
	if p.pausedUntil.After(r.now) {
		a.scheduleAudit(uid, p.pausedUntil)
		a.mu.Unlock()
		return
	}
	p.pending = pendingEvents{}
	a.mu.Unlock()

	if r.pending.rules {
		p.foreignEffect.isCurrent = false // even if this audit does not evaluate the rules
	}
	r.run(ctx)

	if removed := a.storeResults(r); removed {
		a.forget(uid)
	}
}

// storeResults stores the results of an audit. It reports whether the pod is no longer in a.pods.
func (a *Auditor) storeResults(r *auditRun) (removed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[r.uid]
	if p != r.pod {
		return p == nil
	}
	if r.ended && p.orphaned {
		a.removePod(r.uid)
		return true
	}
	p.state, p.effect = r.state, r.effect
	p.isUnreadable = p.isUnreadable && r.state == Unknown
	if r.processorTime >= expensiveAudit {
		p.pausedUntil = time.Now().Add(auditPauseFactor * r.processorTime)
	}
	if r.hasCompared {
		p.auditedAt = r.now
	}
	switch isStartUnknown := r.needsSandbox || r.state == Unknown && !r.hasCompared; {
	case !isStartUnknown:
		p.startUnknownSince = time.Time{}
	case p.startUnknownSince.IsZero():
		p.startUnknownSince = r.now
	}
	if !r.nextAuditAt.IsZero() {
		a.scheduleAudit(r.uid, r.nextAuditAt)
	}
	return false
}

// run determines the desired state of the pod, and audits the pod if it should be redirected.
func (r *auditRun) run(ctx context.Context) {
	if r.item.PodStatus.HasEnded() {
		r.ended = r.orphaned
		return
	}
	p, err := r.ambientPod(ctx, r.uid)
	if err != nil {
		if ctx.Err() == nil { // the agent is not stopping
			r.onUnreadable(err)
		}
		return
	}
	if p != nil {
		defer p.Release()
		r.auditAmbient(ctx, p)
		return
	}
	before := r.pod.records
	if err := r.updateDesired(ctx); err != nil {
		r.onUnknownDesired(ctx, err)
		return
	}
	if r.desired.decision.Outcome != decide.Redirect ||
		r.item.PodStatus.Deleted && r.desired.origin == fromPod {
		r.ended = r.orphaned
		return
	}
	switch {
	case r.orphaned && !r.Compare:
		r.ended = true
		return
	case r.orphaned && r.isStatic(): // the mirror pod of a static pod was deleted
		r.ended = true
		r.addOrphans(ctx) // adds the static pod with the UID of its record
		return
	}
	if !slices.Equal(before, r.pod.records) {
		r.discardSandbox() // the pod may have a new sandbox
	}
	if !r.entersNamespaces() {
		if r.desired.origin == fromPod {
			r.applyPolicy(ctx, time.Time{})
		}
		return
	}
	ns := r.enter(ctx)
	if ns != nil {
		defer func() { _ = ns.Close() }()
	}
	switch {
	case !r.Compare && r.desired.origin != fromPod:
		r.checkStart(ctx, ns)
	case ns != nil:
		r.auditNamespace(ctx, ns)
	}
}

// onUnknownDesired handles a pod whose desired state cannot be determined now. It sets the state
// Unknown, unless the pod was deleted or replaced, the agent is stopping, or the last decision was
// not to redirect the pod.
func (r *auditRun) onUnknownDesired(ctx context.Context, err error) {
	r.nextAuditAt = r.now.Add(errorBackoff)
	if ctx.Err() != nil || source.IsNotFound(err) || source.IsReplaced(err) {
		r.ended = r.orphaned && ctx.Err() == nil
		return
	}
	if r.version == "" || r.desired.decision.Outcome == decide.Redirect {
		r.onUnreadable(err)
	}
}

// auditNamespace compares the pod's network namespace with the desired state, and acts on the
// result.
func (r *auditRun) auditNamespace(ctx context.Context, ns Namespace) {
	r.nextAuditAt = r.nextPeriodicAudit()
	if r.mayADDBeRunning(ns) {
		if r.hasStarted() {
			r.state, r.nextAuditAt = Unknown, r.now.Add(errorBackoff)
		}
		return
	}
	switch err := r.ensureParameters(ctx, ns); {
	case errors.Is(err, errNoAddress):
		r.state, r.nextAuditAt = Unknown, r.now.Add(errorBackoff)
		undecided := r.timeSince(&r.undecidedSince)
		if undecided >= errorBackoff && !r.isSandboxEnding(undecided) {
			r.logUnknownState(err)
		}
		return
	case errors.As(err, new(invalidPodError)):
		r.onInvalidPod(err)
		return
	case err != nil:
		r.onUnknownDesired(ctx, err)
		return
	}
	start := time.Now()
	// A comparison with differences contains the rules, which the repair uses.
	r.lockRules()
	defer r.unlockRules()
	found, err := r.compare(ns)
	if len(found.Differences) == 0 {
		r.unlockRules()
	}
	r.Metrics.Observe(metrics.AuditDuration(), time.Since(start).Seconds())
	switch {
	case err != nil && len(found.Differences) == 0:
		r.onUnreadable(err)
	case len(found.Differences) == 0:
		r.Metrics.Count(metrics.Audits(metrics.AuditEqual), 1)
		r.hasCompared = true
		r.desired.backend = found.Backend
		r.unrepaired.reset()
		r.inspectForeign(ctx, ns)
		r.checkAfterRepair(ctx)
	default:
		r.Metrics.Count(metrics.Audits(metrics.AuditDrift), 1)
		r.hasCompared = true
		r.onDifferences(ctx, ns, found, err)
	}
}

// compare compares the network namespace with the desired state. If they were equal at the last
// audit and the generation ID of nftables has not changed since, compare reads the rules in
// nf_tables only for a pod with counters.
func (r *auditRun) compare(ns Namespace) (found compat.Comparison, err error) {
	last := r.lastEqual
	r.lastEqual = lastEqual{}
	rs, err := r.rulesets.ruleset(r.desired.redirection)
	if err != nil {
		return found, err
	}
	backend, snapshot := r.desired.backend, compat.Snapshot{}
	if last.netns == r.sandbox.ID && last.redirection == r.desired.redirection {
		backend, snapshot = last.found.Backend, last.found.Snapshot
		if r.countsPackets() {
			snapshot.Generation = 0 // makes Check read the rules
		}
	}
	found, err = ns.Check(backend, rs, snapshot)
	if err == nil && len(found.Differences) == 0 {
		r.lastEqual = lastEqual{r.sandbox.ID, r.desired.redirection, found}
		r.readCounters(found.Packets)
	}
	return found, err
}

// maxADDTime is the time after which the ADD of a running pod is no longer expected to run: the
// kubelet waits twice its --runtime-request-timeout (2 min) for a sandbox.
const maxADDTime = 4 * time.Minute

// mayADDBeRunning reports whether the pod's ADD may be running. The pod's addresses may then not be
// assigned yet, and the pod does not count as unprotected. ADD may be running only if the sandbox
// was found in /proc, because processes of the pod may exist before ADD ends. Other sources contain
// a sandbox only after its ADD. If the runtime replaces the sandbox of a running pod, the pod's
// status contains the addresses of the earlier sandbox until ADD has ended. If this takes longer
// than errorBackoff, mayADDBeRunning logs the addresses.
func (r *auditRun) mayADDBeRunning(ns Namespace) bool {
	if r.desired.origin != fromPod || r.sandbox.Source != sandbox.Proc {
		return false
	}
	if !r.hasStarted() {
		return true
	}
	addresses, err := ns.Addresses()
	if err != nil || len(r.desired.addresses) == 0 ||
		slices.ContainsFunc(addresses, func(a netip.Addr) bool {
			return slices.Contains(r.desired.addresses, a.Unmap())
		}) {
		r.addressesDifferSince = time.Time{}
		return false
	}
	waiting := r.timeSince(&r.addressesDifferSince)
	if waiting >= maxADDTime {
		return false
	}
	if waiting >= errorBackoff {
		r.logUnknownState(fmt.Errorf("the addresses of its network namespace are %v, and its status "+
			"has %v: its ADD may be running, which is expected to take at most %v", addresses,
			r.desired.addresses, maxADDTime))
	}
	return true
}

// hasStarted reports whether the pod's status shows a sandbox with a network.
func (r *auditRun) hasStarted() bool {
	return len(r.desired.addresses) > 0 || r.item.PodStatus.Phase == "Running"
}

// timeSince returns the time since begin. It sets begin to the time of the audit if begin is zero.
func (r *auditRun) timeSince(begin *time.Time) time.Duration {
	if begin.IsZero() {
		*begin = r.now
	}
	return r.now.Sub(*begin)
}

// onUnreadable sets the state of a pod whose actual or desired state cannot be read. The first of
// successive failures may have a cause that has ended, such as a lack of memory or descriptors, and
// the pod may lack rules: its audit is repeated soon.
func (r *auditRun) onUnreadable(err error) {
	r.Metrics.Count(metrics.Audits(metrics.AuditError), 1)
	r.logUnknownState(err)
	retry := errorBackoff
	if !r.isUnreadable {
		r.isUnreadable, retry = true, initialBackoff
	}
	r.state, r.nextAuditAt = Unknown, r.now.Add(retry)
}

// logUnknownState logs the reason why the state of a pod is unknown.
func (r *auditRun) logUnknownState(cause error) {
	if _, due := r.countOccurrence(auditFailed); due {
		r.Log.Warn("a pod cannot be audited", zap.Stringer("pod", r.item.Ref), zap.Error(cause))
	}
}

// onInvalidPod reports a pod that cannot be redirected because its parameters are invalid.
func (r *auditRun) onInvalidPod(err error) {
	r.Metrics.Count(metrics.Audits(metrics.AuditError), 1)
	r.state, r.hasCompared, r.nextAuditAt = Unprotected, true, r.now.Add(errorBackoff)
	r.recordEvent(reasonNotRedirected, "the pod cannot be redirected: "+err.Error())
}

// auditTimes is the number of times in an interval at which pods are audited without an event.
// Audits at the same time share the cost of waking a thread and filling caches, which is several
// times the cost of one audit.
const auditTimes = 6

// nextPeriodicAudit returns the time of the next audit without an event. A hash of the pod's UID
// selects one of auditTimes times in the interval. The times are relative to the start of the
// auditor on the monotonic clock, which is never set back. An orphaned pod is audited more often,
// because nothing reports that its sandbox has ended. If comparisons are disabled,
// nextPeriodicAudit returns the zero time.
func (r *auditRun) nextPeriodicAudit() time.Time {
	if !r.Compare {
		return time.Time{}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(r.uid))
	offset := r.Interval / auditTimes * time.Duration(h.Sum64()%auditTimes)
	at := r.begin.Add(r.now.Sub(r.begin).Truncate(r.Interval) + offset)
	if !at.After(r.now) {
		at = at.Add(r.Interval)
	}
	if r.orphaned {
		return earliest(at, r.now.Add(errorBackoff))
	}
	return at
}
