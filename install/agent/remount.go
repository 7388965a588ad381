package agent

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/node"
)

// errMounts is the error of an agent that exits because the runtime reads directories, or files in
// them, that are not mounted in the agent.
var errMounts = errors.New("the runtime reads other directories than the agent's mounts: " +
	"the agent exits, so that the kubelet restarts it with new mounts")

// exitReportTimeout is the time limit for delivering the last events before an exit.
const exitReportTimeout = 5 * time.Second

// exitToRemount makes the agent exit if the status requires new mounts; see [node.Status]. The
// kubelet then restarts the container, with increasing delays, and the runtime mounts the
// directories that it reads, because it creates mounts in its own mount namespace. Meanwhile the
// plugin uses its kubeconfig. The agent's state persists on disk.
func (a *Agent) exitToRemount(s node.Status) {
	if !s.Remount {
		return
	}
	select {
	case a.exit <- errMounts:
		a.options.Log.Error(errMounts.Error(),
			zap.String("configuration", string(s.Directories.Configuration)),
			zap.String("binary", string(s.Directories.Binary)))
	default: // the agent is already about to exit
	}
}

// reportExit sends the node's pending events before the agent exits. Problems that have just begun
// are reported too. It returns when ctx is done at the latest.
func (a *Agent) reportExit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exitReportTimeout)
	defer cancel()
	a.events.deliver(ctx, time.Now(), 0)
}
