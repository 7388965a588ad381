package plugin

import (
	"github.com/containernetworking/cni/pkg/skel"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// Del removes the record of the attachment. It also removes the rules, unless the runtime destroys
// the namespace anyway or another attachment needs them. It always succeeds, because a runtime
// would repeat a failed DEL forever. Remaining rules are removed with the namespace, and remaining
// records by GC. Del reads no pod, and uses the valid part of an invalid configuration.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	start := p.Now()
	c := config.ParseLenient(args.StdinData)
	logger, closeLog := p.openLog(c)
	defer closeLog()
	logger = logger.With(zap.String("sandbox", args.ContainerID), zap.String("ifname", args.IfName))
	defer func() {
		if v := recover(); v != nil {
			logger.Error("DEL", zap.Any("panic", v))
		}
	}()
	store := record.In(c.RunDir)
	if needsRemoval(args, store) {
		if err := p.removeRulesAt(args); err != nil {
			logger.Warn("DEL leaves rules behind", zap.Error(err))
		}
	}
	if err := store.Remove(attachmentKey(args)); err != nil {
		logger.Warn("DEL leaves a record behind", zap.Error(err))
	}
	logger.Debug("DEL", zap.Float64("duration_ms", milliseconds(p.Now().Sub(start))))
	return nil
}

// needsRemoval reports whether the namespace may contain Sluice rules that nothing else removes or
// needs. It returns false for a sandbox of Kubernetes: its runtime destroys the namespace next, and
// removing the rules first would take 5 to 15 ms, in which the kernel unregisters their hooks.
func needsRemoval(args *skel.CmdArgs, store record.Store) bool {
	if pod, _ := parseArgs(args.Args); pod.sandbox != "" && pod.sandbox == args.ContainerID {
		return false
	}
	attachments, _ := store.Of(args.ContainerID)
	for _, r := range attachments {
		switch {
		case r.IfName != args.IfName && r.HasRules():
			return false // another attachment of the pod stays, and shares the rules
		case r.IfName == args.IfName && !r.HasRules():
			return false
		}
	}
	// Without a record there may be rules: an ADD was killed, or could not write the record.
	return true
}

// removeRulesAt removes Sluice's rules from the namespace. It does nothing if the namespace cannot
// be opened, which usually means that it no longer exists, or if it is the host's and the caller
// does not allow that.
func (p *Plugin) removeRulesAt(args *skel.CmdArgs) error {
	ns, err := netns.Open(args.Netns)
	if err != nil {
		return nil
	}
	defer func() { _ = ns.Close() }()
	if isHost(ns) && !allowsHostNamespace(args) {
		return nil
	}
	return p.removeRules(ns)
}
