package bypass

import (
	"fmt"
	"time"
)

// A Cause is the reason why a pod has no ADD of the plugin.
type Cause struct {
	Kind Kind
	// Message describes it with the relevant times.
	Message string
}

// Kind is the kind of a cause.
type Kind string

// The kinds.
const (
	// the sandbox is older than the chain with the plugin, as far as is known
	Early    Kind = "early"
	Gap      Kind = "gap"      // it was created while the chain was incomplete
	Bypassed Kind = "bypassed" // it was created while the chain was complete
	Optional Kind = "optional" // the plugin is not in the chain, by the settings
	Unknown  Kind = "unknown"  // its creation time is unknown or ambiguous
)

// Explain returns the reason why a pod has no ADD of the plugin, from the creation time of its
// sandbox, which is zero if unknown.
func (d *Detector) Explain(created time.Time) Cause {
	if d.options.Optional {
		return Cause{
			Optional,
			"the plugin is not in the node's CNI chain, since chained is false, and the pod has not asked for its network",
		}
	}
	if created.IsZero() {
		return Cause{
			Unknown,
			"the plugin was not called for the pod, and the creation time of its sandbox is unknown",
		}
	}
	d.mu.Lock()
	last, open := d.history.lastComplete(), d.history.open
	d.mu.Unlock()
	if open && created.After(last) && d.options.Check != nil {
		// what the chain was at that time is known only if it has not changed until now
		d.options.Check()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clock.ambiguous(created) {
		return Cause{
			Unknown,
			"the plugin was not called for the pod, and the creation time of its sandbox (" +
				stamp(created) + ") is ambiguous, because the node's clock was set back",
		}
	}
	return d.history.explain(created)
}

func (h *chainHistory) explain(created time.Time) Cause {
	made := "the pod's sandbox was created at " + stamp(created)
	in, found := h.spanAt(created)
	switch {
	case len(h.spans) == 0:
		return Cause{Early, made +
			", and the agent has not found the plugin in the node's CNI chain yet"}
	case created.Before(h.spans[0].from):
		return Cause{
			Early,
			fmt.Sprintf("%s, before the agent found the plugin in the node's CNI chain at %s", made,
				stamp(h.spans[0].from)),
		}
	case found && created.Sub(in.from) < reloadTime:
		return Cause{
			Early,
			fmt.Sprintf("%s, just after the plugin was added to the node's CNI chain (%s)",
				made, stamp(in.from)),
		}
	case found:
		return Cause{
			Bypassed,
			fmt.Sprintf("the runtime created the pod's sandbox at %s without calling the plugin, although the "+
				"node's CNI chain has been complete since %s", stamp(created), stamp(in.from)),
		}
	}
	return Cause{Gap, made + h.gap(in)}
}

// gap describes the problem after a span.
func (h *chainHistory) gap(before span) string {
	text := ", while the node's CNI chain was incomplete: it was last complete at " +
		stamp(before.to)
	for _, s := range h.spans {
		if s.from.After(before.to) {
			return text + ", and again at " + stamp(s.from)
		}
	}
	if h.reason != "" {
		text += " (" + h.reason + ")"
	}
	return text
}
