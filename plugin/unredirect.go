package plugin

import (
	"errors"
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/decide"
)

// This file is about pods that are not redirected but may have rules. When ADD is called again for
// a redirected pod, ADD may skip the pod, because its annotations or the configuration have
// changed.

// unredirect removes the rules that an earlier ADD of the attachment has installed in the sandbox,
// unless another attachment needs them. Rules without a record remain, because a container of the
// pod may have installed them. removed is also true if the namespace could not be opened, which
// usually means that it no longer exists.
func (c *call) unredirect() (removed bool, err error) {
	if !c.wasRedirected() || len(c.otherAttachments()) > 0 {
		return false, nil
	}
	if c.sandbox.ns != nil {
		err = c.removeRules(c.sandbox.ns)
	}
	if err != nil {
		return false, c.failure(CodeApply, "the earlier rules of pod %s cannot be removed", err)
	}
	c.entry.put(zap.String("outcome", "removed"))
	return true, nil
}

// wasRedirected reports whether an earlier ADD of the attachment has redirected the pod in this
// namespace. It returns false if the record of that ADD is missing or cannot be read.
func (c *call) wasRedirected() bool {
	earlier, err := c.store.Get(attachmentKey(c.args))
	return err == nil && earlier.HasRules() && earlier.Netns == c.args.Netns
}

// removeRules removes Sluice's rules from the namespace.
func (p *Plugin) removeRules(ns *netns.NS) error {
	backend, err := p.Backend(compat.BackendAuto)
	if err != nil {
		return err
	}
	_, err = backend.Remove(ns)
	return err
}

// checkUnredirected returns an error if the namespace of a pod that must not be redirected contains
// rules of Sluice. Rules are allowed if another attachment is redirected, or if the pod may have an
// istio-init container, which may have installed them with the program rules.
func (c *call) checkUnredirected(reason decide.Reason) error {
	if !reason.ImpliesNoIstioInit() || len(c.otherAttachments()) > 0 {
		return nil
	}
	installed, err := compat.InstalledBackends(c.sandbox.ns)
	var found []string
	for _, backend := range installed {
		const format = "rules of Sluice exist in %s, but the pod must not be redirected (%s)"
		found = append(found, fmt.Sprintf(format, backend.Name(), reason))
	}
	switch {
	case len(found) > 0:
		err = errors.Join(errors.New(strings.Join(found, "\n")), err)
		return c.failure(CodeDrift, "pod %s has rules of Sluice, but must not be redirected", err)
	case err != nil:
		return c.rulesReadError(err)
	}
	return nil
}
