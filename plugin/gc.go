package plugin

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/plugin/config"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// GC removes the records of the network's attachments that the runtime does not list as valid. The
// namespaces of these attachments no longer exist.
func (p *Plugin) GC(args *skel.CmdArgs) error {
	c, err := config.Parse(args.StdinData)
	if err != nil {
		return configError(err)
	}
	if c.ValidAttachments == nil {
		const problem = "GC requires a list of valid attachments (cni.dev/valid-attachments)"
		return cniError(types.ErrInvalidNetworkConfig, problem, nil)
	}
	logger, closeLog := p.openLog(c)
	defer closeLog()
	valid := make([]record.Key, len(c.ValidAttachments))
	for i, a := range c.ValidAttachments {
		valid[i] = record.Key{ContainerID: a.ContainerID, IfName: a.IfName}
	}
	removed, err := record.In(c.RunDir).Prune(c.Network, valid)
	if len(removed) > 0 {
		logger.Info("GC", zap.String("network", c.Network), zap.Stringers("forgotten", removed))
	}
	if err != nil {
		logger.Error("GC", zap.String("network", c.Network), zap.Error(err))
		const format = "cannot remove all records of deleted attachments to network %s"
		return cniError(types.ErrIOFailure, fmt.Sprintf(format, c.Network), err)
	}
	return nil
}
