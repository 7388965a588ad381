package bypass

import (
	"slices"
	"time"
)

// A span is a period, including its two ends.
type span struct {
	from, to time.Time
}

// chainHistory contains the spans in which the CNI chain was complete at each check, the oldest
// first.
type chainHistory struct {
	spans   []span
	open    bool   // the last span has not ended
	problem string // of the last check that found an incomplete chain
}

// maxSpans is the maximum number of spans. A conflicting writer may end a span every few seconds.
const maxSpans = 256

// note records the state of the chain at a time. If repaired is set, the chain was incomplete until
// a repair, and a new span begins.
func (h *chainHistory) note(at time.Time, complete, repaired bool, reason string) {
	if !complete {
		h.open, h.problem = false, reason
		return
	}
	if h.open && !repaired {
		current := &h.spans[len(h.spans)-1]
		if at.After(current.to) {
			current.to = at
		}
		return
	}
	if len(h.spans) == maxSpans {
		h.spans = slices.Delete(h.spans, 0, 1)
	}
	h.spans, h.open = append(h.spans, span{at, at}), true
}

// lastComplete returns the last time when the chain was complete, or the zero time.
func (h *chainHistory) lastComplete() time.Time {
	if len(h.spans) == 0 {
		return time.Time{}
	}
	return h.spans[len(h.spans)-1].to
}

// spanAt returns the last span that began at or before the time, and whether the span contains the
// time.
func (h *chainHistory) spanAt(at time.Time) (span, bool) {
	for i := len(h.spans) - 1; i >= 0; i-- {
		if s := h.spans[i]; !at.Before(s.from) {
			return s, !at.After(s.to)
		}
	}
	return span{}, false
}
