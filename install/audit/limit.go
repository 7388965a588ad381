package audit

import "time"

// What one pod may cost, whatever its processes do.
const (
	// visitPeriod is how often a pod is compared on and on because of its events or its changes,
	// after a burst of visitBurst that are not delayed. A comparison takes less than a millisecond.
	visitPeriod = 2 * time.Second
	visitBurst  = 10
	// A visit that uses longVisit of a processor or more, as of a pod whose processes have made ten
	// thousands of rules, is followed by a pause that is restFactor times as long: such a pod costs
	// 5 % of a core.
	longVisit  = 100 * time.Millisecond
	restFactor = 20
	// A pod is mended freeMends times without delay; each further time the pause doubles from
	// firstPause to longestPause. After calm without a mend it begins anew.
	freeMends    = 3
	firstPause   = time.Second
	longestPause = time.Minute
	calm         = 10 * time.Minute
)

// visits limits how often a pod is visited because of its events and its changes.
type visits struct{ paid time.Time } // until when visits are paid for

// next takes one visit, and returns when it may be.
func (v *visits) next(now time.Time) time.Time {
	if v.paid.Before(now) {
		v.paid = now
	}
	at := v.paid.Add(-visitBurst * visitPeriod)
	v.paid = v.paid.Add(visitPeriod)
	if limit := now.Add((visitBurst + 1) * visitPeriod); v.paid.After(limit) {
		v.paid = limit // visits that are asked for while one waits are the same one
	}
	if at.Before(now) {
		return now
	}
	return at
}

// rest is the pause after a long visit.
type rest struct{ until time.Time }

// note takes in what a visit has used that has ended.
func (r *rest) note(used time.Duration, now time.Time) {
	if used >= longVisit {
		r.until = now.Add(restFactor * used)
	}
}

// attempts limits how often something is done to a pod.
type attempts struct {
	times int
	last  time.Time
}

// note counts one attempt.
func (a *attempts) note(now time.Time) {
	if now.Sub(a.last) > calm {
		a.times = 0
	}
	a.times, a.last = a.times+1, now
}

// next returns from when on another attempt is allowed.
func (a *attempts) next() time.Time {
	if a.times < freeMends {
		return a.last
	}
	return a.last.Add(pauseAfter(a.times-freeMends, firstPause, longestPause))
}

// pauseAfter doubles a pause with each of a number of times.
func pauseAfter(times int, first, longest time.Duration) time.Duration {
	pause := first
	for range min(times, 30) {
		if pause *= 2; pause >= longest {
			return longest
		}
	}
	return min(pause, longest)
}
