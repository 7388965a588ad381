package client

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// EnrolTimeout limits an enrolment. It is longer than the 30 s for which the agent waits for
// ztunnel before it answers with an error, and shorter than the two minutes for which a kubelet
// waits for a runtime.
const EnrolTimeout = 35 * time.Second

// Enrol enrols a pod in ambient mode. netns is a descriptor of the pod's network namespace, and
// addresses are the addresses of the pod. It returns when ztunnel has acknowledged the pod. The
// error has a [source.Kind], or a kind of package agent.
func (c *Client) Enrol(
	ctx context.Context, ref source.Ref, addresses []netip.Addr, netns int,
) (*agent.Enrolment, error) {
	ctx, cancel := context.WithTimeout(ctx, EnrolTimeout)
	defer cancel()
	start := time.Now()
	e, err := c.caller.Enrol(ctx, ref.Namespace, ref.Name, ref.UID, addresses, netns)
	if err == nil {
		return e, nil
	}
	if agent.IsTimeout(ctx, err) {
		err = fmt.Errorf("no answer within %v", time.Since(start).Round(time.Millisecond))
	}
	kind := kindOf(err)
	var refusal *agent.Refusal
	if errors.As(err, &refusal) && slices.Contains(agent.EnrolKinds(), refusal.Kind) {
		kind = source.Kind(refusal.Kind)
	}
	return nil, source.WithKind(kind, fmt.Errorf("node agent: %w", err))
}
