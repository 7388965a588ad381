package plugin

import (
	"errors"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// Check returns an error if the rules of a mesh pod differ from the rules of its ADD, or if a pod
// that is not redirected has rules of Sluice. Such rules are not an error if another attachment of
// the pod is redirected, or if the pod may have an istio-init container, which may have installed
// them.
//
// The record of the attachment describes what ADD installed. Annotations that changed since then do
// not matter, and the pod is not read. Without a record of this pod, or if the pod could not be
// read at ADD, Check decides as ADD does.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	c, err := p.begin("CHECK", args)
	if err != nil {
		return err
	}
	return c.run(c.check)
}

// check performs CHECK after the input was parsed.
func (c *call) check() (err error) {
	if c.sandbox, err = openSandbox(c.args); err != nil {
		return err
	}
	if c.sandbox.err != nil {
		return c.sandbox.err
	}
	expected, err := c.expectation()
	if err != nil {
		return err
	}
	if expected.redirect == nil && expected.ambient == nil {
		return c.checkUnredirected(expected.reason)
	}
	rs, err := expected.ruleset()
	if err != nil {
		return cniError(CodeParameters, "the parameters are invalid", err)
	}
	found, err := c.compare(expected.backend, c.sandbox.ns, rs, compat.Snapshot{})
	switch {
	case err != nil:
		return c.rulesReadError(err)
	case len(found.Differences) == 0:
		return nil
	}
	return c.differencesError(CodeDrift, "the redirection of pod %s is incorrect", found.Differences)
}

// expectation is the expected content of a namespace. redirect and ambient are nil for a pod that
// is not redirected.
type expectation struct {
	reason   decide.Reason
	redirect *rules.Redirect
	ambient  *rules.Ambient // of a pod in ambient mode, instead of redirect
	backend  compat.BackendName
}

// ruleset compiles the expected rules.
func (e *expectation) ruleset() (rules.Ruleset, error) {
	if e.ambient != nil {
		return rules.CompileAmbient(*e.ambient)
	}
	return rules.Compile(*e.redirect)
}

// expectation returns the expected content of the sandbox.
func (c *call) expectation() (expectation, error) {
	if r, ok := c.decidedRecord(); ok {
		c.entry.put(zap.String("decision", r.Outcome), zap.String("reason", r.Reason))
		return expectation{decide.Reason(r.Reason), r.Redirect, r.Ambient, r.Backend}, nil
	}
	result, err := convertResult(c.config.PrevResult, c.config.CNIVersion)
	if err != nil {
		return expectation{}, cniError(types.ErrInvalidNetworkConfig, "the result of ADD is invalid",
			err)
	}
	d, pod, err := c.decide()
	if err != nil {
		return expectation{}, err
	}
	c.entry.setDecision(d)
	e := expectation{reason: d.Reason, backend: c.config.Backend}
	switch d.Outcome {
	case decide.Redirect:
		var r rules.Redirect
		r, err = c.parameters(c.sandbox.ns, pod, result)
		e.redirect = &r
	case decide.Ambient:
		var a rules.Ambient
		if a, _, err = decide.AmbientParameters(pod, &c.config.Decide); err != nil {
			err = c.failure(CodeParameters, "pod %s has invalid settings", err)
		}
		e.ambient = &a
	}
	return e, err
}

// decidedRecord returns the record of the attachment, and reports whether the record defines the
// desired state of the pod.
func (c *call) decidedRecord() (record.Record, bool) {
	r, err := c.store.Get(attachmentKey(c.args))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.entry.put(zap.NamedError("record_error", err))
		}
		return r, false
	}
	return r, r.Pod.UID == c.ref.UID && r.Decided()
}

// compare compares the rules in the namespace with the ruleset. A nil ns is the namespace of the
// calling thread. since is an earlier snapshot of the namespace, or the zero value.
func (c *call) compare(
	name compat.BackendName, ns *netns.NS, rs rules.Ruleset, since compat.Snapshot,
) (compat.Comparison, error) {
	backend, err := c.Backend(name)
	if err != nil {
		return compat.Comparison{}, err
	}
	return backend.Check(ns, rs, since)
}

// rulesReadError returns the error for rules that cannot be read.
func (c *call) rulesReadError(err error) error {
	return c.failure(CodeVerify, "the rules of pod %s cannot be read", err)
}

// differencesError returns an error that lists differences. See failure for the format.
func (c *call) differencesError(code uint, format string, differences []rules.Difference) error {
	err := errors.New(strings.Join(rules.DifferenceTexts(differences), "\n"))
	c.entry.addFullError(err)
	return c.failure(code, format, err)
}
