package plugin

import (
	"errors"
	"fmt"
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

// Check fails unless the sandbox holds what ADD has left there: the rules of a pod of the mesh, and none in another, unless that may have
// made them itself, as nobody has looked for an istio-init in it. What that is says the record of the attachment: annotations that were
// changed since do not make a pod wrong, and nobody need be asked. Without a record, or if the pod could not be read then, it is found out
// as by ADD.
func (p *Plugin) Check(args *skel.CmdArgs) error {
	c, err := p.begin("CHECK", args)
	if err != nil {
		return err
	}
	return c.do(c.check)
}

func (c *call) check() error {
	ns, err := sandbox(c.args)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	want, err := c.wanted(ns)
	if err != nil {
		return err
	}
	if want.redirect == nil {
		return c.spared(ns, want.reason)
	}
	differences, err := c.differences(want.engine, ns, rules.Compile(*want.redirect))
	if err == nil && len(differences) > 0 {
		err = c.differ(CodeDrift, fmt.Sprintf("pod %s is not redirected as it should be", c.ref.Shown()), differences)
	}
	return err
}

// wanted is what a namespace should hold, and in which engine; of a pod that is left alone it has only the reason.
type wanted struct {
	reason   decide.Reason
	redirect *rules.Redirect
	engine   compat.Engine
}

func (c *call) wanted(ns *netns.NS) (wanted, error) {
	if kept, ok := c.kept(); ok {
		c.entry.put(zap.String("decision", kept.Outcome), zap.String("reason", kept.Reason))
		return wanted{decide.Reason(kept.Reason), kept.Redirect, kept.Engine}, nil
	}
	result, err := resultFor(c.config.PrevResult, c.config.CNIVersion)
	if err != nil {
		return wanted{}, failure(types.ErrInvalidNetworkConfig, "the result of ADD is wrong", err)
	}
	d, pod, err := c.decide()
	if err != nil {
		return wanted{}, err
	}
	c.entry.decided(d)
	if d.Outcome != decide.Redirect {
		return wanted{reason: d.Reason}, nil
	}
	r, err := c.parameters(ns, pod, result)
	return wanted{d.Reason, &r, c.config.Backend}, err
}

// kept returns the record of the attachment, if it says what the pod should have.
func (c *call) kept() (record.Record, bool) {
	r, err := c.store.Get(keyOf(c.args))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.entry.put(zap.NamedError("no_record", err))
		}
		return r, false
	}
	return r, r.Pod.UID == c.ref.UID && r.Decided()
}

// differences compares what the kernel holds with the rules.
func (c *call) differences(engine compat.Engine, ns *netns.NS, rs rules.Ruleset) ([]rules.Difference, error) {
	backend, err := c.Backend(engine)
	if err != nil {
		return nil, c.unseen(err)
	}
	found, err := backend.Check(ns, rs)
	if err != nil {
		return nil, c.unseen(err)
	}
	return found.Differences, nil
}

// unseen is the error of a kernel that does not show what rules it has: whether they are as they should be is not known.
func (c *call) unseen(err error) error {
	return failure(CodeVerify, fmt.Sprintf("the rules that pod %s has cannot be read", c.ref.Shown()), err)
}

// differ is the error that lists differences.
func (c *call) differ(code uint, message string, differences []rules.Difference) error {
	lines := make([]string, len(differences))
	for i, d := range differences {
		lines[i] = d.String()
	}
	err := errors.New(strings.Join(lines, "\n"))
	c.entry.unabridged(err)
	return failure(code, message, err)
}
