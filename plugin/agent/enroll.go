package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/text"
	"github.com/sluice-mesh/sluice/rules"
)

// The kinds of a refusal of [AskEnroll], in addition to the kinds of package source.
const (
	KindParameters = "parameters" // an annotation of the pod is invalid
	KindRules      = "rules"      // the rules cannot be installed in the pod
	KindZtunnel    = "ztunnel"    // ztunnel is not connected, or does not acknowledge the pod
	KindHost       = "host"       // the node's rules for probes cannot be changed
)

// EnrollKinds returns the kinds of a refusal of [AskEnroll] that package source does not define.
func EnrollKinds() []string { return []string{KindParameters, KindRules, KindZtunnel, KindHost} }

// An Enrollment is the answer to [AskEnroll]: the result of enrolling a pod in ambient mode.
// ztunnel has acknowledged the pod.
type Enrollment struct {
	// Ambient has the parameters of the rules in the pod, and Backend is the backend of the rules:
	// nft or legacy.
	Ambient rules.Ambient `json:"ambient"`
	Backend string        `json:"backend"`
	// Outcome is the outcome of installing the rules: created, replaced or unchanged. Rules and
	// Routes are the numbers of rules and of changed routes. Bytes is the size of the transaction,
	// or 0 if the backend has no transactions.
	Outcome string `json:"outcome"`
	Rules   int    `json:"rules"`
	Routes  int    `json:"routes"`
	Bytes   int    `json:"bytes,omitempty"`
	// Notes are hints for the owner of the pod, one line each.
	Notes []string `json:"notes,omitempty"`
}

// Validate returns an error that lists all invalid fields.
func (e *Enrollment) Validate() error {
	var faults []error
	if e.Backend != "nft" && e.Backend != "legacy" {
		faults = append(faults, fmt.Errorf("backend: %q is neither nft nor legacy",
			text.Truncate(e.Backend, maxTextBytes)))
	}
	return errors.Join(append(faults, inField("ambient", e.Ambient.Validate()))...)
}

// Enroll asks the agent to enroll a pod in ambient mode. netns is a descriptor of the pod's network
// namespace, and addresses are the addresses of the pod. A nil error means that ztunnel has
// acknowledged the pod. The error may be a [Refusal]. ctx must have a deadline.
func (c Caller) Enroll(
	ctx context.Context, namespace, name, uid string, addresses []netip.Addr, netns int,
) (*Enrollment, error) {
	body, err := c.query(ctx, Request{
		Verb: AskEnroll, Namespace: namespace, Name: name, UID: uid, Addresses: addresses,
	}, unix.UnixRights(netns))
	return decode(new(Enrollment), body, err, "an enrollment")
}
