package audit

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// Limits for the cost of a pod.
const (
	// Because of events or changes, a pod is compared without delay visitBurst times, and then once
	// per eventPeriod or changePeriod. A comparison takes less than a millisecond.
	visitBurst   = 10
	eventPeriod  = time.Second
	changePeriod = 2 * time.Second
	// After a visit that uses expensiveVisit of processor time or more, for example because of tens
	// of thousands of rules, the pod is not visited for pauseFactor times as long: such a pod costs
	// 5 % of a core.
	expensiveVisit   = 100 * time.Millisecond
	visitPauseFactor = 20
	// A pod is repaired without delay repairBurst times, and then once per repairPeriod: rules that
	// it removes are missing for about a second.
	repairBurst  = 3
	repairPeriod = time.Second
	// After a failed repair, a deletion or a label, the backoff doubles from initialBackoff to
	// maxBackoff. It is reset after backoffReset without one.
	initialBackoff = time.Second
	maxBackoff     = time.Minute
	backoffReset   = 10 * time.Minute
)

// newLimiter returns a limiter for visits or repairs of a pod.
func newLimiter(period time.Duration, burst int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(period), burst)
}

// visitLimit limits the visits of a pod for one reason.
type visitLimit struct {
	limiter *rate.Limiter
	at      time.Time // of the last reserved visit
}

// next returns the time when the pod may be visited. It reserves a visit, unless one is already
// reserved.
func (l *visitLimit) next(now time.Time) time.Time {
	if !l.at.After(now) {
		l.at = now.Add(l.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	return l.at
}

// visitPause is the time until which a pod is not visited after a long visit.
type visitPause struct{ until time.Time }

// note records the processor time of a visit.
func (p *visitPause) note(used time.Duration, now time.Time) {
	if used >= expensiveVisit {
		p.until = now.Add(visitPauseFactor * used)
	}
}

// backoff limits the rate of attempts.
type backoff struct {
	delays workqueue.TypedRateLimiter[string] // by the pods' UIDs
}

func newBackoff() backoff {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[string](initialBackoff, maxBackoff)
	return backoff{delays}
}

// attempt is the last attempt for a pod.
type attempt struct {
	last time.Time // zero if there was none
	next time.Time // time from which another attempt is allowed
}

// note records an attempt for a pod.
func (b backoff) note(uid string, a *attempt, now time.Time) {
	if now.Sub(a.last) > backoffReset {
		b.delays.Forget(uid)
	}
	a.last, a.next = now, now.Add(b.delays.When(uid))
}
