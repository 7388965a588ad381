package audit

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/util/workqueue"
)

// What one pod may cost, whatever its processes do.
const (
	// A pod is compared without delay visitBurst times because of its events or its changes, and
	// then once in eventPeriod or changePeriod. A comparison takes less than a millisecond.
	visitBurst   = 10
	eventPeriod  = time.Second
	changePeriod = 2 * time.Second
	// A visit that uses longVisit of a processor or more, as of a pod whose processes have made ten
	// thousands of rules, is followed by a pause that is restFactor times as long: such a pod costs
	// 5 % of a core.
	longVisit  = 100 * time.Millisecond
	restFactor = 20
	// A pod is repaired without delay repairBurst times, and then once in repairPeriod: what its
	// processes remove is missing for about a second.
	repairBurst  = 3
	repairPeriod = time.Second
	// A repair that does not help, and a deletion or label, is followed by a pause that doubles
	// from firstPause to longestPause. After calm without one it begins anew.
	firstPause   = time.Second
	longestPause = time.Minute
	calm         = 10 * time.Minute
)

// newLimiter returns a limiter of what happens to a pod.
func newLimiter(period time.Duration, burst int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(period), burst)
}

// turn limits how often a pod is visited for one reason.
type turn struct {
	limiter *rate.Limiter
	at      time.Time // of the last visit that was taken
}

// next returns when the pod may be visited. It takes a visit, unless one that was taken before is
// still to come.
func (t *turn) next(now time.Time) time.Time {
	if !t.at.After(now) {
		t.at = now.Add(t.limiter.ReserveN(now, 1).DelayFrom(now))
	}
	return t.at
}

// rest is the pause after a long visit.
type rest struct{ until time.Time }

// note takes in what a visit has used that has ended.
func (r *rest) note(used time.Duration, now time.Time) {
	if used >= longVisit {
		r.until = now.Add(restFactor * used)
	}
}

// backoff spaces attempts at something that is done to pods.
type backoff struct {
	delays workqueue.TypedRateLimiter[string] // by the pods' UIDs
}

func newBackoff() backoff {
	delays := workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPause, longestPause)
	return backoff{delays}
}

// attempt is the last attempt for a pod.
type attempt struct {
	last time.Time // zero if there was none
	next time.Time // from when on another one is allowed
}

// note counts an attempt for a pod.
func (b backoff) note(uid string, a *attempt, now time.Time) {
	if now.Sub(a.last) > calm {
		b.delays.Forget(uid)
	}
	a.last, a.next = now, now.Add(b.delays.When(uid))
}
