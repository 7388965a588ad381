package plugin

import (
	"context"
	"errors"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// Status fails with [types.ErrPluginNotAvailable] if ADD could do nothing for a mesh pod, and nobody on the node would change that: the
// kernel refuses rules, the configuration is wrong, or the API server cannot be asked with the credentials. The runtime reports
// the node as not ready on the first such error, and the kubelet then starts no pod but those in the host's network.
//
// So what would have to be mended by the node agent is logged only, where the configuration names one: the agent's own pod could
// not start to do it, as after a boot that has emptied the run directory. Neither is it an error that the API server is not there, or
// does not answer, since an outage of seconds would take the node's pods out of service; or that it forbids to ask for a pod that
// cannot exist, which says nothing about others; or any of these if pods that cannot be read start anyway.
//
// What was good is not looked at again for some minutes (the kernel) or one (the credentials), on this boot of the node, by this program
// and with this kubeconfig, unless an ADD or a CHECK fails.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	c, wrong := config.Parse(args.StdinData)
	if wrong != nil {
		c = config.Salvage(args.StdinData)
	}
	logger, closeLog := p.openLog(c)
	defer closeLog()
	unmanaged := c.Decide.AgentNamespace == ""
	if wrong != nil {
		logger.Error("STATUS", zap.NamedError("configuration", wrong))
		if unmanaged {
			return failure(types.ErrPluginNotAvailable, configFailure(wrong).Msg, wrong)
		}
	}
	var lacking []error
	known := remember(c.RunDir, p.Now())
	if err := known.unless("kernel "+string(c.Backend), kernelLasts, func() error { return p.kernelReady(c) }); err != nil {
		lacking = append(lacking, err)
	}
	credentials := "source " + c.Kubeconfig + " " + fileID(c.Kubeconfig)
	if err := known.unless(credentials, sourceLasts, func() error { return p.sourceReady(c) }); err != nil {
		logger.Warn("STATUS", zap.String("source", string(source.KindOf(err))), zap.Error(err))
		if unmanaged && c.UnreadablePods == config.Fail && lasting(err) {
			lacking = append(lacking, err)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return failure(types.ErrPluginNotAvailable, "pods of the mesh cannot be started", errors.Join(lacking...))
}

// lasting tells whether the error says that no pod can be read until somebody changes something.
func lasting(err error) bool {
	return source.IsMisconfigured(err) || source.KindOf(err) == source.Unauthorized
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
	ctx, cancel := context.WithTimeout(context.Background(), client.DefaultTimeout+c.APITryTimeout)
	defer cancel()
	from := p.Source(c)
	defer from.Close()
	return from.Ready(ctx)
}
