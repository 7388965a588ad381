package cluster

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster/machine"
)

// A localNode is a node in a machine of package machine. The machine implements the other methods
// of Node.
type localNode struct {
	*machine.Machine
	cluster *Cluster
	name    string
}

// Name implements Node.
func (n *localNode) Name() string { return n.name }

// Listen implements Node.
func (n *localNode) Listen(address string) (net.Listener, error) {
	return listen(fmt.Sprintf("/proc/%d/ns/net", n.PID()), address)
}

// Reboot implements Node.
func (n *localNode) Reboot(ctx context.Context) error {
	rebootTime := time.Now()
	if err := n.Machine.Reboot(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	n.cluster.progress.logf("node %s reboots", n.name)
	if err := n.cluster.waitForReadyNode(ctx, n.name, rebootTime); err != nil {
		return fmt.Errorf("reboot %s: %w", n.name, err)
	}
	return nil
}
