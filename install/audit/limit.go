package audit

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// Limits for the cost of a pod.
const (
	// After events or changes, a pod is audited without delay auditBurst times, and then once per
	// eventPeriod or changePeriod. A comparison takes less than a millisecond.
	auditBurst   = 10
	eventPeriod  = time.Second
	changePeriod = 2 * time.Second
	// An audit is expensive if its work in the network namespace uses at least expensiveAudit of
	// processor time, for example because of tens of thousands of rules. The pod is then not
	// audited for auditPauseFactor times as long, so that this work uses at most 5 % of a core.
	expensiveAudit   = 100 * time.Millisecond
	auditPauseFactor = 20
	// A pod is repaired without delay repairBurst times, and then once per repairPeriod. If the pod
	// removes its rules repeatedly, they are missing for about a second each time.
	repairBurst  = 3
	repairPeriod = time.Second
	// After each failed repair, and after each attempt to delete or label a pod, the backoff
	// doubles from initialBackoff to maxBackoff. It is reset after backoffReset without such an
	// attempt.
	initialBackoff = time.Second
	maxBackoff     = time.Minute
	backoffReset   = 10 * time.Minute
)

// auditLimit limits the audits of a pod for one reason.
type auditLimit struct {
	limiter *rate.Limiter
	at      time.Time // of the last reserved audit
}

// next returns the time when the pod may be audited. It reserves an audit, unless one is already
// reserved.
func (l *auditLimit) next(now time.Time) time.Time {
	if !l.at.After(now) {
		l.at = now.Add(l.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	return l.at
}

// backoff limits the rate of attempts.
type backoff struct {
	delays workqueue.TypedRateLimiter[string] // by the pods' UIDs
}

func newBackoff() backoff {
	return backoff{
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](initialBackoff, maxBackoff),
	}
}

// attempt is the last attempt for a pod.
type attempt struct {
	last time.Time // zero if there was none
	next time.Time // time from which another attempt is allowed
}

// recordAttempt records an attempt for a pod, and determines when the next one is allowed.
func (b backoff) recordAttempt(uid string, a *attempt, now time.Time) {
	if now.Sub(a.last) > backoffReset {
		b.delays.Forget(uid)
	}
	a.last, a.next = now, now.Add(b.delays.When(uid))
}
