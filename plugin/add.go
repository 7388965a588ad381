package plugin

import (
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// Add redirects the pod of the sandbox if it belongs to the mesh, and prints the previous plugin's
// result. A pod in ambient mode is redirected by the node agent. A repeated ADD changes only rules
// that differ.
//
// If Add fails for a pod that was not redirected before, it removes the rules that it has created,
// and keeps no record of them. If an earlier ADD redirected the pod, the earlier or the new rules
// stay in the namespace, and the record of the earlier ADD stays. If only the result cannot be
// written, the new rules and the new record stay, until the runtime calls DEL. Rules that the node
// agent has installed in a pod in ambient mode always stay.
func (p *Plugin) Add(args *skel.CmdArgs) error {
	c, err := p.begin(verbAdd, args)
	if err != nil {
		return err
	}
	var result []byte
	err = c.run(func() (err error) {
		result, err = c.add()
		return err
	})
	if err != nil {
		return err
	}
	if _, err := p.Stdout.Write(result); err != nil {
		return cniError(types.ErrIOFailure, "the result cannot be written", err)
	}
	return nil
}

// add is Add, but returns the result instead of printing it.
func (c *call) add() (_ []byte, err error) {
	// Package skel refuses the host's namespace only after the verb has printed its result.
	if c.sandbox, err = openSandbox(c.args); err != nil {
		return nil, err
	}
	result, err := convertResult(c.config.PrevResult, c.config.CNIVersion)
	if err != nil {
		const problem = "the previous plugin's result is invalid"
		return nil, cniError(types.ErrInvalidNetworkConfig, problem, err)
	}
	d, pod, err := c.decide()
	if err != nil {
		return nil, c.rollBack(err)
	}
	c.entry.setDecision(d)
	r := c.newRecord(d)
	if d.Outcome == decide.Skip {
		return result, c.skipPod(r)
	}
	if c.sandbox.err != nil {
		return nil, c.rollBack(c.sandbox.err)
	}
	if d.Outcome == decide.Ambient {
		err = c.enroll(&r, result)
	} else {
		redirect := redirection{call: c, pod: pod, result: result, record: &r}
		if err = c.sandbox.ns.Do(redirect.install); err != nil {
			err = redirect.codedError(err)
		}
	}
	if err != nil {
		return nil, c.rollBack(err)
	}
	c.putRecord(r)
	c.shareRules(r)
	return result, nil
}

// skipPod removes the rules of an earlier ADD from a pod that this ADD does not redirect, and
// stores the record r of this ADD. If the pod could not be read, the rules stay.
func (c *call) skipPod(r record.Record) error {
	reason := decide.Reason(r.Reason)
	if reason == podUnreadable {
		// Keep the rules of an earlier ADD and their record.
		if !c.wasRedirected() {
			c.putRecord(r)
		}
		return nil
	}
	// If the removal fails, the earlier record stays, and the next ADD tries again. A sandbox that
	// does not belong to Kubernetes needs no record, unless its rules were removed: the new record
	// then replaces the record of these rules.
	removed, err := c.unredirect()
	if err == nil && (reason != decide.NotKubernetes || removed) {
		c.putRecord(r)
	}
	return err
}

// putRecord stores the record. If the record cannot be stored, putRecord removes an earlier record,
// because CHECK would expect the rules that the earlier record describes. ADD succeeds
// nevertheless: the rules are in the kernel, and without a record CHECK decides as ADD does.
func (c *call) putRecord(r record.Record) {
	if err := c.store.Put(r); err != nil {
		c.entry.put(zap.NamedError("record_error", err))
		c.removeRecord()
	}
}

// rollBack removes the record of the attachment after an ADD that failed, and returns the error. If
// an earlier ADD redirected the pod, its record stays, because a later ADD that skips the pod
// removes only rules that a record describes.
func (c *call) rollBack(err error) error {
	if !c.wasRedirected() {
		c.removeRecord()
	}
	return err
}

// removeRecord removes the record of the attachment.
func (c *call) removeRecord() {
	if err := c.store.Remove(attachmentKey(c.args)); err != nil {
		c.entry.put(zap.NamedError("record_error", err))
	}
}

// codedError returns the error of install with the code CodeApply, unless the error already has a
// code.
func (r *redirection) codedError(err error) error {
	if coded := (*types.Error)(nil); errors.As(err, &coded) {
		return err
	}
	return r.failure(CodeApply, "the rules of pod %s cannot be installed", err)
}
