package retire

import (
	"fmt"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A Decision is the decision whether to remove the plugin.
type Decision struct {
	// Remove means to remove the plugin from the node.
	Remove bool
	// Reason is a sentence for the log.
	Reason string
}

// decideBySelection decides to remove the plugin if the agent's DaemonSet, which is not being
// deleted, does not select the node.
func decideBySelection(name cluster.Name, d *cluster.DaemonSet, n *cluster.Node) Decision {
	switch selects, err := d.Spec.Template.Spec.Selects(n); {
	case err != nil:
		return Decision{Reason: fmt.Sprintf("whether DaemonSet %s selects the node is not known: %v",
			name, err)}
	case !selects:
		return Decision{true, fmt.Sprintf("DaemonSet %s no longer selects node %s", name, n.Name)}
	}
	return Decision{
		Reason: fmt.Sprintf("DaemonSet %s selects the node, so another agent follows", name),
	}
}

// decideByDeletion decides to remove the plugin if the DaemonSet does not exist (d is nil) or is
// being deleted.
func decideByDeletion(name cluster.Name, d *cluster.DaemonSet) Decision {
	switch {
	case d == nil:
		return Decision{true, fmt.Sprintf("DaemonSet %s does not exist", name)}
	case d.IsBeingDeleted():
		return Decision{true, fmt.Sprintf("DaemonSet %s is being deleted", name)}
	}
	return Decision{Reason: fmt.Sprintf("DaemonSet %s is not being deleted", name)}
}
