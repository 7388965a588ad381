package bypass

import (
	"slices"
	"time"
)

// clock detects that the node's clock was set, by comparing its readings with a clock that is never
// set.
type clock struct {
	at      time.Time     // last reading
	elapsed time.Duration // reading of the clock that is never set, at the same time
	// repeated contains the times that the clock has shown twice because it was set back.
	repeated []span
}

// maxRepeated is the maximum number of repeated spans. The oldest are dropped first.
const maxRepeated = 64

// note records a reading. It returns the time by which the clock was set since the last reading,
// negative if it was set back; 0 if this is less than reloadTime. If elapsed is nil, the monotonic
// reading of at is used.
func (c *clock) note(at time.Time, elapsed func() time.Duration) time.Duration {
	since, previous := at.Sub(c.at), c.at
	if elapsed != nil {
		now := elapsed()
		since, c.elapsed = now-c.elapsed, now
	}
	c.at = at
	if previous.IsZero() {
		return 0
	}
	at = at.Round(0) // removes the monotonic reading
	expected := previous.Round(0).Add(since)
	step := at.Sub(expected)
	if step.Abs() < reloadTime {
		return 0
	}
	if step < 0 {
		if len(c.repeated) == maxRepeated {
			c.repeated = slices.Delete(c.repeated, 0, 1)
		}
		// The clock may have been set at any moment since the last reading.
		c.repeated = append(c.repeated, span{at.Add(-since), expected})
	}
	return step
}

// now returns the present time by the clock that was read last, as if the clock had not been set
// since the last reading. elapsed is the same function as in note.
func (c *clock) now(elapsed func() time.Duration) time.Time {
	if elapsed == nil {
		return c.at.Add(time.Since(c.at))
	}
	return c.at.Add(elapsed() - c.elapsed)
}

// isAmbiguous reports whether the clock may have shown a time twice.
func (c *clock) isAmbiguous(at time.Time) bool {
	return slices.ContainsFunc(c.repeated, func(r span) bool {
		return !at.Before(r.from) && !at.After(r.to)
	})
}
