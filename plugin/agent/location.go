package agent

import (
	"errors"
	"fmt"

	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// A Location is the network namespace of a pod of the node, and the redirection that it should
// have.
type Location struct {
	// Namespace, Name and UID name the pod.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// NetNS is the path of the pod's network namespace in the agent's mount namespace, or empty if
	// none was found.
	NetNS string `json:"netns,omitempty"`
	// Proc is the path of the node's /proc in the agent's mount namespace, or empty if it is not
	// mounted there.
	Proc string `json:"proc,omitempty"`
	// Orphaned is set if the API server no longer has the pod although its sandbox exists, for
	// example because its deletion was forced.
	Orphaned bool `json:"orphaned,omitempty"`
	// Decision is redirect, ambient or skip. Reason is its reason, as in package decide. Message
	// explains the reason in a lower-case sentence without a full stop; it may be empty.
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Message  string `json:"message,omitempty"`
	// Backend is the backend that should have the rules: nft or legacy, or empty if it is not
	// known.
	Backend string `json:"backend,omitempty"`
	// Redirect has the parameters of the pod's rules. It is nil unless the decision is redirect.
	Redirect *rules.Redirect `json:"redirect,omitempty"`
	// IPv6Bypass says that IPv6 traffic bypasses the proxy, and why, if the parameters do not
	// capture IPv6 and ADD would capture it with the present addresses of the pod. It is a
	// lower-case text without a full stop, or empty.
	IPv6Bypass string `json:"ipv6Bypass,omitempty"`
	// IPv6Unknown is the reason why the agent cannot decide whether IPv6Bypass applies. It is a
	// lower-case text without a full stop, or empty.
	IPv6Unknown string `json:"ipv6Unknown,omitempty"`
	// Ambient has the parameters of the rules of a pod in ambient mode. It is nil unless the
	// decision is ambient.
	Ambient *rules.Ambient `json:"ambient,omitempty"`
}

// Validate returns an error that lists all invalid fields.
func (l *Location) Validate() error {
	var faults []error
	if l.Namespace == "" || l.Name == "" {
		faults = append(faults, errors.New("the pod has no namespace or no name"))
	}
	switch {
	case l.Decision != "redirect" && l.Decision != "ambient" && l.Decision != "skip":
		faults = append(faults,
			fmt.Errorf("decision: %q is neither redirect nor ambient nor skip",
				text.Truncate(l.Decision, maxTextBytes)))
	case (l.Redirect != nil) != (l.Decision == "redirect"),
		(l.Ambient != nil) != (l.Decision == "ambient"):
		faults = append(faults,
			fmt.Errorf("decision: %s does not match the parameters: redirect needs redirect, "+
				"ambient needs ambient, and skip neither", l.Decision))
	case l.Redirect != nil:
		faults = append(faults, inField("redirect", l.Redirect.Validate()))
	}
	if l.Ambient != nil {
		faults = append(faults, inField("ambient", l.Ambient.Validate()))
	}
	return errors.Join(append(faults, checkBackend(l.Backend))...)
}

// inField adds the name of the field to an error that is not nil.
func inField(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkBackend returns an error unless the name is empty, nft or legacy.
func checkBackend(name string) error {
	if name != "" && name != "nft" && name != "legacy" {
		return fmt.Errorf("backend: %q is neither nft nor legacy", text.Truncate(name, maxTextBytes))
	}
	return nil
}
