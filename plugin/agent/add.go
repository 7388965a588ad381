package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/text"
)

// An Add is what became of an ADD. Its words are the values of labels of metrics.
type Add struct {
	// Result is success or error.
	Result string `json:"result"`
	// Decision is redirect, skip, unreadable for a pod that could not be read, or undecided if the call failed before.
	Decision string `json:"decision"`
	// Reason is why it was decided so: one of [Reasons].
	Reason string `json:"reason"`
	// Backend is nft or legacy, and none if no rules were sent.
	Backend string `json:"backend"`
	// Uncaptured are the address families that the pod has and that pass the proxy; see [Families].
	Uncaptured []string `json:"uncaptured,omitempty"`
	// Duration is what the call took.
	Duration time.Duration `json:"duration_ns"`
	// Bytes is the size of the transaction; 0 if there was none.
	Bytes int `json:"bytes,omitempty"`
	// Namespace, Name and UID name the pod; empty for a sandbox of none.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Reasons for decisions beside those of package decide.
const (
	PodUnreadable = "pod-unreadable" // the pod could not be read
	Undecided     = "undecided"      // the call failed before: decision and reason
)

// Reasons returns all that an Add may have: those of package decide for what is decided in the end, and ours.
func Reasons() []string {
	var words []string
	for _, r := range decide.Reasons() {
		if r != decide.PodUnknown && r != decide.NamespaceUnknown {
			words = append(words, string(r))
		}
	}
	return append(words, PodUnreadable, Undecided)
}

// Decisions returns all that an Add may have.
func Decisions() []string { return []string{"redirect", "skip", "unreadable", Undecided} }

// Families returns those that can be left uncaptured. IPv4 never is.
func Families() []string { return []string{IPv6} }

// IPv6 is the word for that family.
const IPv6 = "ipv6"

// Validate tells whether all words are known and all numbers make sense. The error lists all that do not.
func (a *Add) Validate() error {
	var faults []error
	word := func(field, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			faults = append(faults, fmt.Errorf("%s: %q is none of %q", field, text.Cut(value, longestText), allowed))
		}
	}
	word("result", a.Result, "success", "error")
	word("decision", a.Decision, Decisions()...)
	word("reason", a.Reason, Reasons()...)
	word("backend", a.Backend, "nft", "legacy", "none")
	for i, family := range a.Uncaptured {
		word("uncaptured", family, Families()...)
		if slices.Contains(a.Uncaptured[:i], family) {
			faults = append(faults, fmt.Errorf("uncaptured: %q twice", text.Cut(family, longestText)))
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
