package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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
	if err := h.Parameters.Validate(); err != nil {
		faults = append(faults, fmt.Errorf("parameters: %w", err))
	}
	if err := checkBackend(h.Backend); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Host returns the rules of the node. The error may be a [Refusal], of kind not-found if ambient
// mode is disabled, and unavailable if the agent does not know the node's pods yet.
func (c Caller) Host(ctx context.Context) (*HostRules, error) {
	body, err := c.Query(ctx, Request{Verb: GetHost})
	if err != nil {
		return nil, err
	}
	found := new(HostRules)
	if json.Unmarshal(body, found) != nil {
		return nil, errors.New("its answer contains no rules of a node")
	}
	if err := found.Validate(); err != nil {
		return nil, fmt.Errorf("its answer is wrong: %w", err)
	}
	return found, nil
}
