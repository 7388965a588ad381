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

// A pod that was redirected may have to be left alone when ADD is called for it again: its annotations or the configuration have
// changed meanwhile.

// spare takes the rules away that an earlier ADD of the attachment has left in the sandbox, unless another attachment needs them. Rules
// of which there is no record are not touched: a container of the pod may have made them.
func (c *call) spare() (spared bool, err error) {
	if !c.wasRedirected() || len(c.beside()) > 0 {
		return false, nil
	}
	if err := c.clear(c.args); err != nil {
		return false, failure(CodeApply, fmt.Sprintf("the rules that pod %s had before cannot be removed", c.ref.Shown()), err)
	}
	c.entry.put(zap.String("rules_were", "removed"))
	return true, nil
}

// wasRedirected tells whether an earlier ADD of the attachment has redirected the pod.
func (c *call) wasRedirected() bool {
	earlier, err := c.store.Get(keyOf(c.args))
	return err == nil && earlier.Redirect != nil && earlier.Netns == c.args.Netns
}

// spared fails if rules of ours are in the namespace of a pod that is left alone, unless they are another attachment's, or for all that is
// known the pod should have them, or makes them itself, perhaps by our command: by an istio-init, which nobody has looked for where
// less was enough to decide.
func (c *call) spared(ns *netns.NS, reason decide.Reason) error {
	if !reason.RulesOutIstioInit() || len(c.beside()) > 0 {
		return nil
	}
	holders, err := compat.Holders(ns)
	var found []string
	for _, backend := range holders {
		found = append(found, fmt.Sprintf("there are rules of ours by %s, and the pod is left alone (%s)", backend.Engine(), reason))
	}
	switch {
	case len(found) > 0:
		err = errors.Join(errors.New(strings.Join(found, "\n")), err)
		return failure(CodeDrift, fmt.Sprintf("pod %s is redirected and should not be", c.ref.Shown()), err)
	case err != nil:
		return c.unseen(err)
	}
	return nil
}
