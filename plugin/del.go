package plugin

import (
	"github.com/containernetworking/cni/pkg/skel"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// Del forgets the attachment, and takes the rules out of a namespace that stays. It always succeeds: a runtime would try again for
// ever, and what it cannot do goes with the namespace, or by GC. It asks nobody, and of a wrong configuration it takes what it
// can.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	start := p.Now()
	c := config.Salvage(args.StdinData)
	logger, closeLog := p.openLog(c)
	defer closeLog()
	logger = logger.With(zap.String("sandbox", args.ContainerID), zap.String("ifname", args.IfName))
	defer func() {
		if v := recover(); v != nil {
			logger.Error("DEL", zap.Any("panic", v))
		}
	}()
	store := record.In(c.RunDir)
	if needsClearing(args, store) {
		if err := p.clear(args); err != nil {
			logger.Warn("DEL leaves rules behind", zap.Error(err))
		}
	}
	if err := store.Remove(keyOf(args)); err != nil {
		logger.Warn("DEL leaves a record behind", zap.Error(err))
	}
	logger.Debug("DEL", zap.Float64("duration_ms", milliseconds(p.Now().Sub(start))))
	return nil
}

// needsClearing tells whether the namespace may have rules of ours that nobody else removes or needs. It does not for a sandbox of
// Kubernetes: its runtime destroys the namespace next, and until then the kernel would take 5 to 15 ms to unregister the hooks.
func needsClearing(args *skel.CmdArgs, store record.Store) bool {
	if named, _ := parseArgs(args.Args); named.sandbox != "" && named.sandbox == args.ContainerID {
		return false
	}
	attachments, _ := store.Of(args.ContainerID)
	for _, r := range attachments {
		switch {
		case r.IfName != args.IfName && r.Redirect != nil:
			return false // the pod's other attachment stays, and the rules are those of both
		case r.IfName == args.IfName && r.Redirect == nil:
			return false
		}
	}
	// Without a record there may be rules nevertheless: of an ADD that was killed, or could not keep one.
	return true
}

// clear removes our rules from the namespace, if that is there and not the host's.
func (p *Plugin) clear(args *skel.CmdArgs) error {
	ns, err := netns.Open(args.Netns)
	if err != nil {
		return nil
	}
	defer func() { _ = ns.Close() }()
	if isHost(ns) && !overridden(args) {
		return nil
	}
	backend, err := p.Backend(compat.EngineAuto)
	if err != nil {
		return err
	}
	_, err = backend.Remove(ns)
	return err
}
