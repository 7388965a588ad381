package bypass

import "time"

// A span is a time during which the chain was complete at each check.
type span struct {
	from, to time.Time
}

// chainHistory contains the spans, the oldest first. If open is true the last one has not ended.
type chainHistory struct {
	spans []span
	open  bool
	// reason is the problem at the last check, if the chain was not complete.
	reason string
}

// keptSpans is the maximum number of spans. A conflicting writer may end one every few seconds.
const keptSpans = 256

// note records the state at a time. repaired reports that the chain had to be repaired: it may have
// been incomplete before, so a new span begins.
func (h *chainHistory) note(at time.Time, ok, repaired bool, reason string) {
	if !ok {
		h.open, h.reason = false, reason
		return
	}
	if h.open && !repaired {
		current := &h.spans[len(h.spans)-1]
		if at.After(current.to) {
			current.to = at
		}
		return
	}
	if len(h.spans) == keptSpans {
		h.spans = append(h.spans[:0], h.spans[1:]...)
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
