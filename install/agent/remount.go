package agent

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/node"
)

// errMounts is the error of an agent that ends because the runtime reads other directories than the
// ones that are mounted for it.
var errMounts = errors.New("the runtime reads other directories than the agent's mounts: " +
	"the agent ends, and the kubelet starts it with new mounts")

// farewellTime is how long an agent that ends waits for the API server to take its last events.
const farewellTime = 5 * time.Second

// remount ends the agent where only new mounts help. The runtime makes them: so they are what it
// reads itself, however the directories were replaced, and no right to write elsewhere on the node
// is needed. Kubelet restarts the container, later and later if that does not help. Until then pods
// are served by the kubeconfig, and nothing is lost: what the agent knows is on disk.
func (a *Agent) remount(s node.Status) {
	if !s.Remount {
		return
	}
	select {
	case a.ended <- errMounts:
		a.options.Log.Error(errMounts.Error(), zap.String("configuration", string(s.Directories.Configuration)),
			zap.String("binary", string(s.Directories.Binary)))
	default: // it is ending
	}
}

// farewell tells the node's events what is wrong before the agent ends because of it.
func (a *Agent) farewell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, farewellTime)
	defer cancel()
	a.events.deliver(ctx)
}
