package plugin

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/log"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// Status fails with [types.ErrPluginNotAvailable] if ADD could do nothing for a mesh pod: the configuration is wrong, the kernel
// refuses rules, or the API server will not tell about pods. An API server that is not there, or does not answer, is no such error:
// a runtime reports the node as not ready on the first one, and an outage of seconds would take its pods out of service. Nor are
// credentials as long as pods that cannot be read start anyway.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	c, err := config.Parse(args.StdinData)
	if err != nil {
		f := configFailure(err)
		return failure(types.ErrPluginNotAvailable, f.Msg, err)
	}
	logger, closeLog := log.Open(c.Log, p.Stderr)
	defer closeLog()
	var lacking []error
	if err := p.kernelReady(c); err != nil {
		lacking = append(lacking, err)
	}
	if err := p.sourceReady(c); err != nil {
		logger.Warn("STATUS", zap.String("source", string(source.KindOf(err))), zap.Error(err))
		if c.UnreadablePods == config.Fail && !source.IsUnavailable(err) {
			lacking = append(lacking, err)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return failure(types.ErrPluginNotAvailable, "pods of the mesh cannot be started", errors.Join(lacking...))
}

// kernelReady does for a namespace that is gone afterwards what ADD does for most pods.
func (p *Plugin) kernelReady(c *config.Config) error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	backend, err := p.Backend(c.Backend)
	if err != nil {
		return err
	}
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	_, err = backend.Apply(ns, rules.Compile(r))
	return err
}

func (p *Plugin) sourceReady(c *config.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.APITryTimeout)
	defer cancel()
	from := p.Source(c)
	defer from.Close()
	return from.Ready(ctx)
}
