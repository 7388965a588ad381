package bypass

import "time"

// clock detects that the node's clock is set, from the time that elapses between two readings.
type clock struct {
	// at is the last reading, and elapsed the reading at the same time of a clock that is never
	// set.
	at      time.Time
	elapsed time.Duration
	// repeated contains the times that the clock has shown twice because it was set back.
	repeated []interval
}

type interval struct{ from, to time.Time }

// keptIntervals is the maximum number of intervals; the oldest is dropped first.
const keptIntervals = 64

// read records a reading and returns by how much the clock was set since the last one; 0 if by less
// than the accuracy of the readings. If elapsed is nil, the monotonic reading of at is used.
func (c *clock) read(at time.Time, elapsed func() time.Duration) time.Duration {
	since, previous := at.Sub(c.at), c.at
	if elapsed != nil {
		now := elapsed()
		since, c.elapsed = now-c.elapsed, now
	}
	c.at = at
	if previous.IsZero() {
		return 0
	}
	at = at.Round(0) // without the monotonic reading
	last := previous.Round(0).Add(since)
	step := at.Sub(last)
	if step.Abs() < reloadTime {
		return 0
	}
	if step < 0 {
		if len(c.repeated) == keptIntervals {
			c.repeated = append(c.repeated[:0], c.repeated[1:]...)
		}
		// the clock may have been set at any moment since the last reading
		c.repeated = append(c.repeated, interval{at.Add(-since), last})
	}
	return step
}

// ambiguous reports whether the clock has shown a time twice.
func (c *clock) ambiguous(at time.Time) bool {
	for _, r := range c.repeated {
		if !at.Before(r.from) && !at.After(r.to) {
			return true
		}
	}
	return false
}
