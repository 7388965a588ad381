package plugin

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
	"github.com/sluice-mesh/sluice/plugin/record"
	"github.com/sluice-mesh/sluice/rules"
)

// Add redirects the sandbox's pod if it belongs to the mesh, and prints the previous plugin's result. To call it again does nothing
// but what has changed meanwhile. If it fails, rules that were not there before are gone again, and nothing is kept of the
// attachment, unless an earlier ADD has redirected it: then the namespace has rules still, those or the new ones, if nobody has taken
// them away meanwhile, and what is known of the earlier ones is kept.
func (p *Plugin) Add(args *skel.CmdArgs) error {
	c, err := p.begin(verbAdd, args)
	if err != nil {
		return err
	}
	var result []byte
	err = c.do(func() (err error) {
		result, err = c.add()
		return err
	})
	if err != nil {
		return err
	}
	if _, err := p.Stdout.Write(result); err != nil {
		return failure(types.ErrIOFailure, "the result cannot be written", err)
	}
	return nil
}

func (c *call) add() ([]byte, error) {
	// Package skel would refuse it too, but behind the result, so that standard output had two answers.
	if err := refuseHost(c.args); err != nil {
		return nil, err
	}
	result, err := resultFor(c.config.PrevResult, c.config.CNIVersion)
	if err != nil {
		return nil, failure(types.ErrInvalidNetworkConfig, "the previous plugin's result is wrong", err)
	}
	d, pod, err := c.decide()
	if err != nil {
		return nil, c.abandon(err)
	}
	c.entry.decided(d)
	kept := c.newRecord(d)
	done, err := c.carryOut(d, pod, result, &kept)
	if err != nil || done {
		return result, err
	}
	// CHECK can do without, and what redirects the pod is in the kernel.
	if err := c.store.Put(kept); err != nil {
		c.entry.put(zap.NamedError("not_kept", err))
		c.forget()
	}
	if kept.Redirect != nil {
		c.shareRules(kept)
	}
	return result, nil
}

// carryOut does what was decided, and completes the record. It tells whether the record need not be kept.
func (c *call) carryOut(d decide.Decision, pod *decide.Pod, result []byte, kept *record.Record) (done bool, err error) {
	switch {
	case d.Outcome == decide.Redirect:
		r, engine, err := c.redirect(pod, result)
		if err != nil {
			return false, c.abandon(err)
		}
		kept.Redirect, kept.Engine = &r, engine
		return false, nil
	case d.Reason == podUnreadable:
		// Rules that are there stay, and so does what is known of them: the pod was one of the mesh.
		return c.wasRedirected(), nil
	}
	// If that fails the record stays, so that the next ADD tries again.
	spared, err := c.spare()
	return d.Reason == decide.NotKubernetes && !spared, err
}

// abandon forgets the attachment of an ADD that fails, and returns its error. Rules of an earlier ADD are still there: without their
// record, nobody would remove them when the pod is to be left alone.
func (c *call) abandon(err error) error {
	if !c.wasRedirected() {
		c.forget()
	}
	return err
}

// forget removes the record of the attachment.
func (c *call) forget() {
	if err := c.store.Remove(keyOf(c.args)); err != nil {
		c.entry.put(zap.NamedError("not_forgotten", err))
	}
}

// redirect puts the rules of a pod into its namespace, and returns what they were compiled from, and what has them.
func (c *call) redirect(pod *decide.Pod, result []byte) (rules.Redirect, compat.Engine, error) {
	ns, err := sandbox(c.args)
	if err != nil {
		return rules.Redirect{}, "", err
	}
	defer func() { _ = ns.Close() }()
	r, err := c.parameters(ns, pod, result)
	if err != nil {
		return rules.Redirect{}, "", err
	}
	engine, err := c.install(ns, rules.Compile(r))
	return r, engine, err
}

// install applies the rules, reads them back and returns the engine that has them.
func (c *call) install(ns *netns.NS, rs rules.Ruleset) (compat.Engine, error) {
	backend, err := c.Backend(c.config.Backend)
	if err != nil {
		return "", failure(CodeApply, "there is no such backend", err)
	}
	applied, err := backend.Apply(ns, rs)
	verified := false
	defer func() {
		// Rules that were there before stay: without them a running pod would pass the proxy.
		if !verified && applied.Outcome == nft.Created {
			c.takeBack(ns, backend)
		}
	}()
	if err != nil {
		return "", failure(CodeApply, fmt.Sprintf("the rules of pod %s cannot be installed", c.ref.Shown()), err)
	}
	c.entry.applied(applied)
	differences, err := c.differences(applied.Engine, ns, rs)
	if err == nil && len(differences) > 0 {
		err = c.differ(CodeVerify, fmt.Sprintf("the kernel has other rules for pod %s than it was given", c.ref.Shown()), differences)
	}
	verified = err == nil
	return applied.Engine, err
}

// takeBack removes rules that this call has made.
func (c *call) takeBack(ns *netns.NS, backend compat.Backend) {
	if _, err := backend.Remove(ns); err != nil {
		c.entry.put(zap.NamedError("not_removed", err))
	}
}
