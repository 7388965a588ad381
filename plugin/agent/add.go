package agent

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// An Add is what became of an ADD. Its words are the values of labels of metrics.
type Add struct {
	// Result is success or error.
	Result string `json:"result"`
	// Decision is redirect, skip, or unreadable for a pod that could not be read.
	Decision string `json:"decision"`
	// Backend is nft or legacy, and none if no rules were sent.
	Backend string `json:"backend"`
	// Duration is what the call took.
	Duration time.Duration `json:"duration_ns"`
	// Bytes is the size of the transaction; 0 if there was none.
	Bytes int `json:"bytes,omitempty"`
	// Namespace, Name and UID name the pod; empty for a sandbox of none.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

// Validate tells whether all words are known and all numbers make sense. The error lists all that do not.
func (a *Add) Validate() error {
	var faults []error
	word := func(field, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			faults = append(faults, fmt.Errorf("%s: %q is none of %q", field, cut(value), allowed))
		}
	}
	word("result", a.Result, "success", "error")
	word("decision", a.Decision, "redirect", "skip", "unreadable")
	word("backend", a.Backend, "nft", "legacy", "none")
	if a.Duration < 0 {
		faults = append(faults, fmt.Errorf("duration: %v is negative", a.Duration))
	}
	if a.Bytes < 0 {
		faults = append(faults, fmt.Errorf("bytes: %d is negative", a.Bytes))
	}
	return errors.Join(faults...)
}
