package bypass

import (
	"slices"
	"time"
)

// A span is a period, including its two ends.
type span struct {
	from, to time.Time
}

// A period is a span in which the chain was complete at each check.
type period struct {
	span
	end     periodEnd // why the period has ended; empty if it has not
	problem string    // of the last check between this period and the next one
}

// A periodEnd is the reason why a period has ended.
type periodEnd string

const (
	incomplete periodEnd = "incomplete" // a check found the chain incomplete
	notRead    periodEnd = "not read"   // the chain could not be read
	clockSet   periodEnd = "clock set"  // the node's clock was set
)

// chainHistory contains the periods in which the CNI chain was complete, the oldest first.
type chainHistory struct {
	periods []period
	dropped bool // periods before the first one were dropped
}

// maxPeriods is the maximum number of periods. A conflicting writer may end a period every few
// seconds.
const maxPeriods = 256

// last returns the last period, or nil if there is none.
func (h *chainHistory) last() *period {
	if len(h.periods) == 0 {
		return nil
	}
	return &h.periods[len(h.periods)-1]
}

// isOpen reports whether the last period has not ended.
func (h *chainHistory) isOpen() bool {
	last := h.last()
	return last != nil && last.end == ""
}

// note records the result of a check.
func (h *chainHistory) note(c ChainCheck) {
	switch {
	case c.Unread:
		h.end(notRead, c.Reason)
		return
	case !c.Complete:
		h.end(incomplete, c.Reason)
		return
	case c.Repaired:
		h.end(incomplete, "")
	}
	if h.isOpen() {
		if current := h.last(); c.At.After(current.to) {
			current.to = c.At
		}
		return
	}
	if len(h.periods) == maxPeriods {
		h.periods, h.dropped = slices.Delete(h.periods, 0, 1), true
	}
	from := c.At
	if !c.Done.IsZero() {
		from = c.Done
	}
	h.periods = append(h.periods, period{span: span{from, from}})
}

// end ends the last period, if there is one. If the period has already ended because the chain
// could not be read, an incomplete chain replaces this reason. It does not replace a set clock,
// because the times before and after the step are not comparable.
func (h *chainHistory) end(reason periodEnd, problem string) {
	last := h.last()
	if last == nil {
		return
	}
	if last.end == "" || last.end == notRead {
		last.end = reason
	}
	last.problem = problem
}

// lastComplete returns the last time when the chain was complete, or the zero time.
func (h *chainHistory) lastComplete() time.Time {
	if last := h.last(); last != nil {
		return last.to
	}
	return time.Time{}
}

// periodAt returns the last period that began at or before the time, and whether the period
// contains the time.
func (h *chainHistory) periodAt(at time.Time) (period, bool) {
	for i := len(h.periods) - 1; i >= 0; i-- {
		if p := h.periods[i]; !at.Before(p.from) {
			return p, !at.After(p.to)
		}
	}
	return period{}, false
}
