package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/plugin/source"
)

// enroll makes the node agent enroll a pod in ambient mode. The agent installs the rules, passes
// the network namespace to ztunnel and waits for ztunnel's acknowledgement. Without the agent the
// pod does not start, because its traffic would bypass ztunnel.
func (c *call) enroll(r *record.Record, result []byte) error {
	addresses, err := c.addresses(c.sandbox.ns, result)
	if err != nil {
		return err
	}
	e, err := c.Agent(c.config).Enroll(context.Background(), c.ref, addresses, c.sandbox.ns.FD())
	if err != nil {
		c.entry.addFullError(err)
		return c.enrollError(err)
	}
	c.entry.setEnrolled(e)
	r.Ambient, r.Backend = &e.Ambient, compat.BackendName(e.Backend)
	return nil
}

// enrollError returns the error of an enrollment with a code for the runtime.
func (c *call) enrollError(err error) error {
	const format = "pod %s is in ambient mode and cannot be enrolled (%s)"
	code := types.ErrTryAgainLater
	kind := source.KindOf(err)
	switch string(kind) {
	case agent.KindParameters:
		code = CodeParameters
	case agent.KindRules, agent.KindHost:
		code = CodeApply
	}
	return cniError(code, fmt.Sprintf(format, c.ref.Shown(), kind), err)
}

// setEnrolled records what the agent has done.
func (e *logEntry) setEnrolled(done *agent.Enrollment) {
	e.add.Backend, e.add.Bytes = done.Backend, done.Bytes
	e.put(zap.String("backend", done.Backend), zap.String("outcome", done.Outcome),
		zap.Int("rules", done.Rules), zap.Int("routes", done.Routes),
		zap.Int("transaction_bytes", done.Bytes))
	if len(done.Notes) > 0 {
		e.put(zap.String("notes", strings.Join(done.Notes, "; ")))
	}
}
