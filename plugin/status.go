package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/agent/client"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/source"
	"github.com/sluice-mesh/sluice/rules"
)

// Status fails with [types.ErrPluginNotAvailable] if ADD would fail for every mesh pod and no
// program on the node would repair the cause: the kernel rejects rules, the configuration is
// invalid, the kubeconfig cannot be used, or the API server does not accept the credentials. The
// runtime reports the node as not ready on the first such error, and the kubelet then starts only
// pods in the host's network.
//
// If the configuration names a node agent, faults that the agent repairs are only logged. If they
// were errors, the agent's pod could not start, for example after a boot, when the run directory is
// empty. The following are not errors either:
//
//   - The API server cannot be reached or does not answer: an outage of seconds would take the pods
//     of the node out of service.
//   - The API server forbids reading the pod that the check requests, which cannot exist: this says
//     nothing about other pods.
//   - The node cannot create another network namespace, because of its memory or of a limit
//     (namespaces(7)): the check of the kernel needs one, and ADD does not.
//   - Any fault of the API server, the kubeconfig or the credentials, if the configuration lets
//     pods that cannot be read start without redirection.
//
// The result of a successful check is cached: for five minutes for the kernel, and for one minute
// for the credentials. The results are discarded after a boot of the node, after a failed ADD or
// CHECK, and if the program changes. If the kubeconfig changes, the credentials are checked again.
func (p *Plugin) Status(args *skel.CmdArgs) error {
	c, configErr := config.Parse(args.StdinData)
	if configErr != nil {
		c = config.ParseLenient(args.StdinData)
	}
	logger, closeLog := p.openLog(c)
	defer closeLog()
	hasAgent := c.Decide.AgentNamespace != ""
	if configErr != nil {
		logger.Error("STATUS", zap.NamedError("configuration", configErr))
		if !hasAgent {
			return cniError(types.ErrPluginNotAvailable, configError(configErr).Msg, configErr)
		}
	}
	var errs []error
	cache := openStatusCache(c.RunDir, p.Now())
	if err := cache.check("kernel "+string(c.Backend), kernelTTL, func() error {
		return p.kernelReady(c)
	}); errors.Is(err, errNoNamespace) {
		logger.Warn("STATUS", zap.NamedError("kernel", err))
	} else if err != nil {
		errs = append(errs, err)
	}
	sourceKey := "source " + c.Kubeconfig + " " + fileID(c.Kubeconfig)
	if err := cache.check(sourceKey, sourceTTL, func() error {
		return p.sourceReady(c)
	}); err != nil {
		logger.Warn("STATUS", zap.String("source", string(source.KindOf(err))), zap.Error(err))
		if !hasAgent && c.UnreadablePods == config.Fail && isPermanent(err) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return cniError(types.ErrPluginNotAvailable, "pods of the mesh cannot be started",
		errors.Join(errs...))
}

// isPermanent reports whether the error means that no pod can be read until the configuration or
// the credentials change.
func isPermanent(err error) bool {
	return source.IsMisconfigured(err) || source.KindOf(err) == source.Unauthorized
}

// errNoNamespace means that the kernel cannot be checked, because the node cannot create another
// network namespace now.
var errNoNamespace = errors.New("the kernel cannot be checked now")

// kernelReady applies the rules of a typical pod in a temporary namespace.
func (p *Plugin) kernelReady(c *config.Config) error {
	ns, err := netns.New()
	switch {
	// ENOSPC means that the limit user.max_net_namespaces is reached (unshare(2)).
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: %w", errNoNamespace, err)
	case err != nil:
		return err
	}
	defer func() { _ = ns.Close() }()
	backend, err := p.Backend(c.Backend)
	if err != nil {
		return err
	}
	r := rules.DefaultRedirect()
	r.InboundPorts.All, r.OutboundCIDRs.All = true, true
	_, err = backend.Apply(ns, rules.MustCompile(r), compat.Snapshot{})
	return err
}

// sourceReady returns an error if the source of pods cannot be used.
func (p *Plugin) sourceReady(c *config.Config) error {
	ctx, cancel := context.WithTimeout(context.Background(), client.DefaultTimeout+c.APITryTimeout)
	defer cancel()
	pods := p.Source(c)
	defer pods.Close()
	return pods.Ready(ctx)
}
