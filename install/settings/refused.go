package settings

import (
	"maps"
	"slices"
)

// A Refusal is a variable of Istio's installer that Sluice rejects, because it has no effect or
// another meaning in Sluice.
type Refusal struct {
	Env string
	// Reason continues a sentence that begins with the variable's name.
	Reason string
}

// Refused returns the variables of Istio's installer that Sluice rejects, in the order of their
// names.
func Refused() []Refusal {
	var list []Refusal
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		list = append(list, Refusal{name, refused[name]})
	}
	return list
}

// refused maps the names of the variables to [Refusal.Reason].
var refused = map[string]string{
	"ALLOW_SWITCH_TO_HOST_NS": "has no effect; in ambient mode the agent always writes the node's " +
		"rules in the node's network namespace",
	"AMBIENT_DISABLE_SAFE_UPGRADE": "is not supported; pods stay enrolled during an upgrade, and " +
		"leave when the agent is uninstalled",
	"AMBIENT_ENABLE_AWS_BRANCH_ENI_PROBE": "is not supported; pods in ambient mode with a branch " +
		"network interface of AWS get no routes for probes",
	"AMBIENT_RECONCILE_POD_RULES_ON_STARTUP": "is not supported; the rules of pods in ambient mode " +
		"are always checked when the agent starts",
	"AMBIENT_USE_SCOPED_XTABLES_LOCKING": "configures the lock of iptables programs, and Sluice " +
		"runs no programs",
	"CNI_NETWORK_CONFIG": "is not read by Istio either; these settings determine the plugin's " +
		"configuration",
	"CNI_NETWORK_CONFIG_FILE": "is not read by Istio either; these settings determine the plugin's " +
		"configuration",
	"ENABLE_AMBIENT_DETECTION_RETRY": "is not supported; ADD always fails if a pod cannot be read, " +
		"unless SLUICE_UNREADABLE_PODS=skip",
	"FORCE_IPTABLES_BINARY": "selects an iptables program, and Sluice runs no programs; " +
		"SLUICE_BACKEND=nft or legacy selects the backend",
	"ISTIO_OWNED_CNI_CONF_FILENAME": "is set by Istio's chart and not read by Istio; use " +
		"ISTIO_OWNED_CNI_CONFIG_FILENAME",
	"KUBERNETES_NODE_NAME": "is only printed by Istio; the name of the node is NODE_NAME",
	"LOG_LEVEL":            "is not read by Istio either; use SLUICE_LOG_LEVEL",
	"NATIVE_NFTABLES":      "is not supported; use SLUICE_BACKEND=nft",
	"REPAIR_NODE_NAME":     "is not supported; the agent repairs pods of its own node, NODE_NAME",
	"REVISION":             "is not used by Istio either; the value revision of the chart sets labels",
	"SYSTEM_NAMESPACE":     "has no effect; the agent does not need to know the namespace of ztunnel",
}
