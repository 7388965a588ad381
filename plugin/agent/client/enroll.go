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

// EnrollTimeout limits an enrollment. It is longer than the time that the agent waits for ztunnel
// before it answers with an error (30 s), and shorter than the time that a kubelet waits for a
// sandbox (four minutes).
const EnrollTimeout = 35 * time.Second

// Enroll enrolls a pod in ambient mode. netns is a descriptor of the pod's network namespace, and
// addresses are the addresses of the pod. A nil error means that ztunnel has acknowledged the pod.
// [source.KindOf] returns the kind of an error: a kind of package source, or one of
// [agent.EnrollKinds].
func (c *Client) Enroll(
	ctx context.Context, ref source.Ref, addresses []netip.Addr, netns int,
) (*agent.Enrollment, error) {
	ctx, cancel := context.WithTimeout(ctx, EnrollTimeout)
	defer cancel()
	start := time.Now()
	e, err := c.caller.Enroll(ctx, ref.Namespace, ref.Name, ref.UID, addresses, netns)
	if err == nil {
		return e, nil
	}
	if agent.IsTimeout(ctx, err) {
		err = fmt.Errorf("no answer within %v", time.Since(start).Round(time.Millisecond))
	}
	kind := errorKind(err)
	var refusal *agent.Refusal
	if errors.As(err, &refusal) && slices.Contains(agent.EnrollKinds(), refusal.Kind) {
		kind = source.Kind(refusal.Kind)
	}
	return nil, source.WithKind(kind, fmt.Errorf("node agent: %w", err))
}
