package bypass

import "time"

// A span is a time during which the chain was as it should be, each time that it was looked at.
type span struct {
	from, last time.Time
}

// history has the spans, the oldest first. The last one goes on if open.
type history struct {
	spans []span
	open  bool
	// why is what was wrong when the chain was looked at last and was not as it should be.
	why string
}

// keptSpans is how many spans are remembered. A conflicting writer may end one every few seconds.
const keptSpans = 256

// note takes in what was found at a time. Changed says that the chain is as it should be only since
// then.
func (h *history) note(at time.Time, ok, changed bool, why string) {
	if !ok {
		h.open, h.why = false, why
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

// last returns when the chain was as it should be last; the zero time for never.
func (h *history) last() time.Time {
	if len(h.spans) == 0 {
		return time.Time{}
	}
	return h.spans[len(h.spans)-1].last
}

// during returns the span that a time is in.
func (h *history) during(at time.Time) (span, bool) {
	for i := len(h.spans) - 1; i >= 0; i-- {
		if s := h.spans[i]; !at.Before(s.from) {
			return s, !at.After(s.last)
		}
	}
	return span{}, false
}
