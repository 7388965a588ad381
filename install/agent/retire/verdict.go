package retire

import (
	"fmt"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A Verdict is a decision about the plugin.
type Verdict struct {
	// Leave means to remove the plugin from the node.
	Leave bool
	// Reason is a sentence for the log.
	Reason string
}

// decide decides with the current objects. d is nil if there is no DaemonSet.
func decide(name cluster.Name, d *cluster.DaemonSet, n *cluster.Node) Verdict {
	if v := goes(name, d); v.Leave {
		return v
	}
	switch selects, err := d.Spec.Template.Spec.Selects(n); {
	case err != nil:
		return Verdict{
			false, fmt.Sprintf("whether DaemonSet %s selects the node is not known: %v", name, err),
		}
	case !selects:
		return Verdict{
			true, fmt.Sprintf("DaemonSet %s does not select node %s any more", name, n.Meta.Name),
		}
	}
	return Verdict{
		false,
		fmt.Sprintf("DaemonSet %s stays and selects the node, so that the next agent takes over",
			name),
	}
}

// goes decides whether the DaemonSet is being deleted.
func goes(name cluster.Name, d *cluster.DaemonSet) Verdict {
	switch {
	case d == nil:
		return Verdict{true, fmt.Sprintf("DaemonSet %s is deleted", name)}
	case d.Deleted():
		return Verdict{true, fmt.Sprintf("DaemonSet %s is being deleted", name)}
	}
	return Verdict{false, fmt.Sprintf("DaemonSet %s stays", name)}
}
