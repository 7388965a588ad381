package bypass

import "time"

// A span is a time during which the chain was complete at each check.
type span struct {
	from, last time.Time
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

// note records the state at a time. changed means that the chain is complete only since then.
func (h *chainHistory) note(at time.Time, ok, changed bool, reason string) {
	if !ok {
		h.open, h.reason = false, reason
		return
	}
	if h.open && !changed {
		last := &h.spans[len(h.spans)-1]
		if at.After(last.last) {
			last.last = at
		}
		return
	}
	if len(h.spans) == keptSpans {
		h.spans = append(h.spans[:0], h.spans[1:]...)
	}
	h.spans, h.open = append(h.spans, span{at, at}), true
}

// last returns the last time when the chain was complete, or the zero time.
func (h *chainHistory) last() time.Time {
	if len(h.spans) == 0 {
		return time.Time{}
	}
	return h.spans[len(h.spans)-1].last
}

// during returns the span that contains a time.
func (h *chainHistory) during(at time.Time) (span, bool) {
	for i := len(h.spans) - 1; i >= 0; i-- {
		if s := h.spans[i]; !at.Before(s.from) {
			return s, !at.After(s.last)
		}
	}
	return span{}, false
}
