package agent

import (
	"context"
	"errors"

	"github.com/sluice-mesh/sluice/rules"
)

// HostRules are the rules that the node should have for pods in ambient mode.
type HostRules struct {
	// NetNS is the path of the node's network namespace in the agent's mount namespace, and Proc
	// the path of the node's /proc.
	NetNS string `json:"netns"`
	Proc  string `json:"proc"`
	// Backend is the backend of the rules: nft or legacy, or empty if the rules have not been
	// written yet.
	Backend    string            `json:"backend,omitempty"`
	Parameters rules.AmbientHost `json:"parameters"`
}

// Validate returns an error that lists all invalid fields.
func (h *HostRules) Validate() error {
	var faults []error
	if h.NetNS == "" {
		faults = append(faults, errors.New("there is no network namespace"))
	}
	faults = append(faults, inField("parameters", h.Parameters.Validate()), checkBackend(h.Backend))
	return errors.Join(faults...)
}

// Host returns the rules of the node. The error may be a [Refusal], of kind not-found if ambient
// mode is disabled, and unavailable if the agent does not know the node's pods yet.
func (c Caller) Host(ctx context.Context) (*HostRules, error) {
	body, err := c.Query(ctx, Request{Verb: GetHost})
	return decode(new(HostRules), body, err, "the rules of a node")
}
