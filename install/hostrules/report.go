package hostrules

import (
	"fmt"

	"github.com/sluice-mesh/sluice/nft/watch"
)

// A ReportKind is a kind of report.
type ReportKind string

// The kinds.
const (
	// Repaired: another program had changed or removed the rules, and the guard has restored them.
	Repaired ReportKind = "repaired"
	// Conflict: another program changes or removes the rules repeatedly, and the guard restores
	// them at most once per second. It is reported again only after ten minutes without a delayed
	// repair.
	Conflict ReportKind = "conflict"
	// Failed: the rules cannot be read or written. The guard tries again every second.
	Failed ReportKind = "failed"
	// KubeletChanged: the kubelet has another cgroup or user, and the rules were changed for it.
	KubeletChanged ReportKind = "kubelet-changed"
	// KubeletMissing: the kubelet is not found.
	KubeletMissing ReportKind = "kubelet-missing"
	// MatchedByUser: the kernel cannot match a cgroup, and the rules match the kubelet's user
	// instead.
	MatchedByUser ReportKind = "by-user"
	// Unwatched: the guard receives no events about changes of the rules. Until it can subscribe
	// again, the rules are only compared at an interval.
	Unwatched ReportKind = "unwatched"
)

// A Report describes a change of the rules, or a problem with them.
type Report struct {
	Kind ReportKind
	// Err is the reason for the report; nil for Repaired, Conflict and KubeletChanged.
	Err error
	// Process and PID name the process that last changed rules, if it is known.
	Process string
	PID     uint32
	// Kubelet is the kubelet for KubeletChanged and MatchedByUser.
	Kubelet Kubelet
}

// Summary returns a sentence that depends only on the kind.
func (r Report) Summary() string {
	switch r.Kind {
	case Repaired:
		return "the rules for probes of pods in ambient mode were changed by another program, " +
			"and the agent has restored them"
	case Conflict:
		return "another program changes the rules for probes of pods in ambient mode repeatedly, " +
			"and the agent restores them at most once per second, so probes may fail"
	case Failed:
		return "the rules for probes of pods in ambient mode cannot be read or written, " +
			"so probes may fail"
	case KubeletChanged:
		return "the kubelet has another cgroup or user, and the rules for probes of pods " +
			"in ambient mode were changed for it"
	case MatchedByUser:
		return "the kernel cannot match the kubelet's cgroup, " +
			"so every process of the kubelet's user counts as the kubelet"
	case KubeletMissing:
		return "the kubelet is not found; the rules for probes of pods in ambient mode still match " +
			"the cgroup or user of the kubelet that was found last, or user 0 if none was found"
	}
	return "changes of the node's rules are not noticed immediately, " +
		"only when the rules are compared at an interval"
}

// String returns the report as a sentence.
func (r Report) String() string {
	text := r.Summary()
	switch {
	case r.PID != 0:
		text += fmt.Sprintf(" (the last change of rules was made by process %q, pid %d of the node)",
			r.Process, r.PID)
	case r.Kind == KubeletChanged:
		text += ": " + r.Kubelet.String()
	case r.Kind == MatchedByUser:
		text += fmt.Sprintf(": user %d: %v", r.Kubelet.UID, r.Err)
	case r.Err != nil:
		text += ": " + r.Err.Error()
	}
	return text
}

// setProcess sets the process that last changed rules if the event names it.
func (r *Report) setProcess(event *watch.Event) {
	if event != nil && event.PID != 0 {
		r.Process, r.PID = event.Process, event.PID
	}
}
