package bypass

import (
	"fmt"
	"time"
)

// A Cause is the reason why the plugin has no record of an ADD for a pod.
type Cause struct {
	Kind Kind
	// Message describes the cause with the relevant times.
	Message string
}

// Kind is the kind of a cause.
type Kind string

// The kinds.
const (
	// Early: the sandbox was created before the agent found the plugin in the chain, or just after.
	Early    Kind = "early"
	Gap      Kind = "gap"      // the sandbox was created while the chain was incomplete
	Bypassed Kind = "bypassed" // the sandbox was created while the chain was complete
	Optional Kind = "optional" // the settings do not insert the plugin into the chain
	Called   Kind = "called"   // the plugin was called; see [Detector.NoteSandboxAdd]
	// Unknown: the creation time of the sandbox is unknown or ambiguous, or the state of the chain
	// at that time is unknown.
	Unknown Kind = "unknown"
)

// Explain returns the reason why there is no record of an ADD for the pod with the UID, from the
// creation time of its sandbox, which is zero if unknown.
func (d *Detector) Explain(uid string, created time.Time) Cause {
	if d.options.Optional {
		return Cause{Optional, "the plugin is not in the node's CNI chain, because chained is false, " +
			"and the pod has not requested the plugin's network"}
	}
	if created.IsZero() {
		return Cause{Unknown, "the plugin was not called for the pod, and the creation time of its " +
			"sandbox is unknown"}
	}
	d.mu.Lock()
	called, last, open := d.added.contains(uid, created), d.history.lastComplete(), d.history.isOpen()
	d.mu.Unlock()
	if called {
		return Cause{Called, "the plugin was called for the pod, but the record of this ADD is " +
			"missing, and the pod has no rules"}
	}
	if open && created.After(last) && d.options.Check != nil {
		// The chain was complete at the last check before the sandbox was created. If it is still
		// complete now, it was complete in between.
		d.options.Check()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock.isAmbiguous(created) {
		return Cause{Unknown, "the plugin was not called for the pod, and the creation time of its " +
			"sandbox (" + formatTime(created) + ") is ambiguous, because the node's clock was set back"}
	}
	return d.history.explain(created)
}

// explain returns the reason why the plugin was not called for a pod, from the known and
// unambiguous creation time of the pod's sandbox.
func (h *chainHistory) explain(created time.Time) Cause {
	text := "the pod's sandbox was created at " + formatTime(created)
	last, complete := h.periodAt(created)
	switch {
	case len(h.periods) == 0:
		return Cause{Early, text +
			", and the agent has not found the plugin in the node's CNI chain yet"}
	case created.Before(h.periods[0].from) && h.dropped:
		return Cause{Unknown, text + ", and the agent has kept the states of the node's CNI chain " +
			"only since " + formatTime(h.periods[0].from)}
	case created.Before(h.periods[0].from):
		return Cause{Early, text + ", before the agent found the plugin in the node's CNI chain " +
			"at " + formatTime(h.periods[0].from)}
	case complete && created.Sub(last.from) < reloadTime:
		return Cause{Early, fmt.Sprintf(
			"%s, just after the plugin was added to the node's CNI chain (%s)", text,
			formatTime(last.from))}
	case complete:
		return Cause{Bypassed, fmt.Sprintf(
			"the runtime created the pod's sandbox at %s without calling the plugin, although the "+
				"node's CNI chain had been complete since %s", formatTime(created), formatTime(last.from))}
	}
	gap := h.describeGap(last)
	switch last.end {
	case notRead:
		return Cause{Unknown, text + ", while the agent could not read the node's CNI chain: " + gap}
	case clockSet:
		return Cause{Unknown, text + ", but the node's clock was set meanwhile, and the state of " +
			"the node's CNI chain at that time is unknown: " + gap}
	}
	return Cause{Gap, text + ", while the node's CNI chain was incomplete: " + gap}
}

// describeGap describes the time after a period, when the chain was not known to be complete.
func (h *chainHistory) describeGap(before period) string {
	text := "it was last complete at " + formatTime(before.to)
	for _, p := range h.periods {
		if p.from.After(before.to) {
			return text + ", and again at " + formatTime(p.from)
		}
	}
	if before.problem != "" {
		text += " (" + before.problem + ")"
	}
	return text
}
