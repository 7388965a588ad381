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
	"github.com/sluice-mesh/sluice/rules"
)

// Add redirects the sandbox's pod if it belongs to the mesh, and prints the previous plugin's result. To call it again does nothing
// but what has changed meanwhile. If it fails, rules that were not there before are gone again, and nothing is kept of the
// attachment.
func (p *Plugin) Add(args *skel.CmdArgs) error {
	c, err := p.begin("ADD", args)
	if err != nil {
		return err
	}
	result, err := c.add()
	c.end(err)
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
	if d.Outcome == decide.Redirect {
		r, engine, err := c.redirect(pod, result)
		if err != nil {
			return nil, c.abandon(err)
		}
		kept.Redirect, kept.Engine = &r, engine
	}
	if d.Reason == decide.NotKubernetes {
		return result, nil
	}
	// CHECK can do without, and what redirects the pod is in the kernel.
	if err := c.store.Put(kept); err != nil {
		c.entry.add(zap.NamedError("not_kept", c.abandon(err)))
	}
	if kept.Redirect != nil {
		c.shareRules(kept)
	}
	return result, nil
}

// abandon forgets the attachment of an ADD that fails, and returns its error.
func (c *call) abandon(err error) error {
	if removeErr := c.store.Remove(keyOf(c.args)); removeErr != nil {
		c.entry.add(zap.NamedError("not_forgotten", removeErr))
	}
	return err
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
	if err != nil {
		return "", failure(CodeApply, fmt.Sprintf("the rules of pod %s cannot be installed", c.ref), err)
	}
	c.entry.applied(applied)
	if backend, err = c.Backend(applied.Engine); err == nil {
		err = verify(backend, ns, rs)
	}
	if err == nil {
		return applied.Engine, nil
	}
	// Rules that were there before stay: without them a running pod would pass the proxy.
	if applied.Outcome == nft.Created {
		if _, removeErr := backend.Remove(ns); removeErr != nil {
			c.entry.add(zap.NamedError("not_removed", removeErr))
		}
	}
	c.entry.unabridged(err)
	return "", failure(CodeVerify, fmt.Sprintf("the kernel has other rules for pod %s than it was given", c.ref), err)
}

// verify compares what the kernel holds with the rules.
func verify(backend compat.Backend, ns *netns.NS, rs rules.Ruleset) error {
	found, err := backend.Check(ns, rs)
	if err == nil && len(found.Differences) > 0 {
		err = driftError(found.Differences)
	}
	return err
}
