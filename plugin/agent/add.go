package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// An Add is the report of an ADD. Result, Decision, Reason, Backend and Uncaptured contain values
// of metric labels.
type Add struct {
	// Result is [AddSucceeded] or [AddFailed].
	Result string `json:"result"`
	// Decision is redirect, ambient or skip; unreadable if the pod could not be read; undecided if
	// the call failed before the decision.
	Decision string `json:"decision"`
	// Reason is the reason for the decision, one of [Reasons].
	Reason string `json:"reason"`
	// Backend is nft or legacy, or none if no rules were sent.
	Backend string `json:"backend"`
	// Uncaptured are the address families of the pod that bypass the proxy: see [Families].
	Uncaptured []string `json:"uncaptured,omitempty"`
	// Duration is the duration of the call.
	Duration time.Duration `json:"duration_ns"`
	// Bytes is the size of the transaction; 0 if there was none.
	Bytes int `json:"bytes,omitempty"`
	// Namespace, Name and UID name the pod. They are empty for a sandbox without a pod.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// The results of an Add.
const (
	AddSucceeded = "success"
	AddFailed    = "error"
)

// Reasons in addition to the reasons of package decide.
const (
	PodUnreadable = "pod-unreadable" // the pod could not be read
	Undecided     = "undecided"      // the call failed before the decision; also used as Decision
)

// Reasons returns all reasons of an Add: the reasons for final decisions in package decide, and the
// reasons in this package.
func Reasons() []string {
	var reasons []string
	for _, r := range decide.Reasons() {
		if r != decide.PodUnknown && r != decide.NamespaceUnknown {
			reasons = append(reasons, string(r))
		}
	}
	return append(reasons, PodUnreadable, Undecided)
}

// Decisions returns all decisions of an Add.
func Decisions() []string {
	return []string{"redirect", "ambient", "skip", "unreadable", Undecided}
}

// Families returns the address families that may be uncaptured. IPv4 is always captured.
func Families() []string { return []string{IPv6} }

// IPv6 is the family IPv6 in [Add.Uncaptured].
const IPv6 = "ipv6"

// Validate returns an error that lists all fields with an unknown or repeated word, or with a
// negative number.
func (a *Add) Validate() error {
	var faults []error
	checkWord := func(field, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			faults = append(faults,
				fmt.Errorf("%s: %q is not one of %q", field, text.Truncate(value, maxTextBytes), allowed))
		}
	}
	checkWord("result", a.Result, AddSucceeded, AddFailed)
	checkWord("decision", a.Decision, Decisions()...)
	checkWord("reason", a.Reason, Reasons()...)
	checkWord("backend", a.Backend, "nft", "legacy", "none")
	for i, family := range a.Uncaptured {
		checkWord("uncaptured", family, Families()...)
		if slices.Contains(a.Uncaptured[:i], family) {
			faults = append(faults,
				fmt.Errorf("uncaptured: %q is repeated", text.Truncate(family, maxTextBytes)))
		}
	}
	if a.Duration < 0 {
		faults = append(faults, fmt.Errorf("duration: %v is negative", a.Duration))
	}
	if a.Bytes < 0 {
		faults = append(faults, fmt.Errorf("bytes: %d is negative", a.Bytes))
	}
	return errors.Join(faults...)
}
