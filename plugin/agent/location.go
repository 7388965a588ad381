package agent

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// A Location says where a pod of the node is, and what redirection it should have there.
type Location struct {
	// Namespace, Name and UID name the pod.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// NetNS is the path of its network namespace, as the agent's mount namespace has it; empty if none was found.
	NetNS string `json:"netns,omitempty"`
	// Decision is redirect or skip, Reason the word for why (see package decide), and Sentence the same to a person, beginning with a
	// small letter and without a full stop; it may be empty.
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Sentence string `json:"sentence,omitempty"`
	// Backend is the engine that the rules should be in: nft or legacy, or empty if that is not known.
	Backend string `json:"backend,omitempty"`
	// Redirect is what the pod's rules are compiled from; nil unless the decision is redirect.
	Redirect *rules.Redirect `json:"redirect,omitempty"`
}

// Validate tells whether the location makes sense. The error lists all that does not.
func (l *Location) Validate() error {
	var faults []error
	if l.Namespace == "" || l.Name == "" {
		faults = append(faults, errors.New("the pod has no name"))
	}
	switch {
	case l.Decision != "redirect" && l.Decision != "skip":
		faults = append(faults, fmt.Errorf("decision: %q is neither redirect nor skip", text.Cut(l.Decision, longestText)))
	case (l.Redirect != nil) != (l.Decision == "redirect"):
		faults = append(faults, fmt.Errorf("decision: %s, which does not fit the redirection", l.Decision))
	case l.Redirect != nil:
		if err := l.Redirect.Validate(); err != nil {
			faults = append(faults, fmt.Errorf("redirect: %w", err))
		}
	}
	if l.Backend != "" && l.Backend != "nft" && l.Backend != "legacy" {
		faults = append(faults, fmt.Errorf("backend: %q is neither nft nor legacy", text.Cut(l.Backend, longestText)))
	}
	return errors.Join(faults...)
}
