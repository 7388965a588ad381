package retire

import (
	"fmt"

	"github.com/sluice-mesh/sluice/install/agent/cluster"
)

// A Verdict is what becomes of the plugin.
type Verdict struct {
	// Leave takes the plugin off the node; otherwise it stays.
	Leave bool
	// Reason is a sentence for the log.
	Reason string
}

// decide decides by what the API server says now. There is no DaemonSet if d is nil.
func decide(name cluster.Name, d *cluster.DaemonSet, n *cluster.Node) Verdict {
	if v := goes(name, d); v.Leave {
		return v
	}
	switch selects, err := d.Spec.Template.Spec.Selects(n); {
	case err != nil:
		return Verdict{false, fmt.Sprintf("whether DaemonSet %s selects the node is not known: %v", name, err)}
	case !selects:
		return Verdict{true, fmt.Sprintf("DaemonSet %s does not select node %s any more", name, n.Meta.Name)}
	}
	return Verdict{false, fmt.Sprintf("DaemonSet %s stays and selects the node, so that the next agent takes over", name)}
}

// goes decides whether the DaemonSet itself goes.
func goes(name cluster.Name, d *cluster.DaemonSet) Verdict {
	switch {
	case d == nil:
		return Verdict{true, fmt.Sprintf("DaemonSet %s is deleted", name)}
	case d.Deleted():
		return Verdict{true, fmt.Sprintf("DaemonSet %s is being deleted", name)}
	}
	return Verdict{false, fmt.Sprintf("DaemonSet %s stays", name)}
}
