package metrics

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

var auditMetrics = []Metric{
	{
		Name: "sluice_pods", Type: Gauge,
		Labels: []Label{{"state", []string{"redirected", "drifted", "unprotected", "unknown"}}},
		Help: "Mesh pods on the node, including force-deleted pods whose sandboxes exist, by the " +
			"state of their redirection; " +
			"unprotected pods have no rules; unknown means that the agent cannot determine the " +
			"state, for example because the network namespace was not found, or because the " +
			"effect of foreign rules cannot be decided",
	},
	{
		Name: "sluice_pods_foreign_rules", Type: Gauge,
		Labels: []Label{{"effect", []string{"bypass", "unknown"}}},
		Help: "Mesh pods on the node whose own rules are correct, and in which foreign rules let " +
			"captured traffic " +
			"bypass the proxy, or may do so: unknown if that cannot be decided",
	},
	{
		Name: "sluice_audits_total", Type: Counter,
		Labels: []Label{{"result", []string{"equal", "drift", "error"}}},
		Help: "Audits of pods, by the result of the comparison with the desired rules; error " +
			"means that the rules could not be compared",
	},
	{
		Name: "sluice_audit_duration_seconds", Type: Histogram, Buckets: durations,
		Help: "Duration of a comparison",
	},
	{
		Name: "sluice_audit_last_completed_timestamp_seconds", Type: Gauge,
		Help: "Time since which all mesh pods of the node whose state is known have been " +
			"audited, in seconds since 1970",
	},
	{
		Name: "sluice_drifts_total", Type: Counter,
		Labels: []Label{{
			"kind", []string{"absent", "missing", "extra", "changed", "reordered", "routes"},
		}},
		Help: "Differences found in running pods; absent means that all rules were missing",
	},
	{
		Name: "sluice_repairs_total", Type: Counter,
		Labels: []Label{
			{"cause", []string{"drift", "race", "bypass"}},
			{"action", []string{"repair", "label", "delete"}},
			result,
		},
		Help: "Actions for pods with missing or changed redirection; " +
			"bypass means that the runtime did not call the plugin although the plugin was in " +
			"the chain, " +
			"race that the pod started without the plugin for another reason",
	},
	{
		Name: "sluice_bypassed_pods_total", Type: Counter,
		Help: "Mesh pods whose sandbox the runtime created without calling the plugin, although " +
			"the node's CNI chain was complete",
	},
	{
		Name: "sluice_repair_duration_seconds", Type: Histogram,
		Labels: []Label{{"cause", []string{"drift", "race", "bypass"}}}, Buckets: durations,
		Help: "Time from the detection of missing or changed redirection until the repair was " +
			"verified",
	},
	{
		Name: "sluice_bypassing_connections_total", Type: Counter,
		Labels: []Label{{"result", []string{"ended", "kept", "failed", "undecided", "error"}}},
		Help: "Connections that bypass the proxy because they were opened before a pod was " +
			"repaired, by result; " +
			"undecided connections are kept because it is unknown whether they bypass it, and error " +
			"counts pods whose connections could not all be read",
	},
	{
		Name: "sluice_rule_packets_total", Type: Counter, Replaced: true,
		// The names namespace and pod are not used, because Prometheus sets these labels to the pod
		// that it scrapes.
		Labels: []Label{
			{Name: "pod_namespace"},
			{Name: "pod_name"},
			{"direction", []string{"inbound", "outbound"}},
			{"outcome", outcomes()},
		},
		Help: "Packets that the rules of pods with counters have counted, by outcome: the first " +
			"packet of each connection, but each " +
			"packet for dropped_invalid, and for excluded inbound ports and interfaces in mode " +
			"TPROXY",
	},
	{
		Name: "sluice_events_lost_total", Type: Counter,
		Labels: []Label{{"source", []string{"nftables", "files", "pods"}}},
		Help:   "Overflows and failures of an event source; after one of nftables, all pods are audited",
	},
}

// outcomes returns the outcomes of the roles of rules.
func outcomes() []string {
	var names []string
	for _, r := range rules.Roles() {
		names = append(names, r.Outcome())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// agentMetrics are metrics of the agent itself.
var agentMetrics = []Metric{
	{
		Name: "sluice_build_info", Type: Gauge,
		Labels: []Label{{Name: "version"}, {Name: "goversion"}},
		Help:   "The version of the agent; the value is always 1",
	},
	{
		Name: "sluice_connections_refused_total", Type: Counter,
		Labels: []Label{{"port", []string{"health", "metrics"}}},
		Help:   "Connections to the agent's ports that were refused because there were too many",
	},
	{
		Name: "sluice_log_lines_suppressed_total", Type: Counter,
		Help: "Lines that the agent did not log because there were too many of the same message",
	},
}

// istioMetrics are metrics of istio-cni that users' alerts and dashboards use.
var istioMetrics = []Metric{
	{
		Name: "istio_cni_install_ready", Type: Gauge,
		Help: "sluice_install_ready under istio-cni's name",
	},
	{
		Name: "istio_cni_installs_total", Type: Counter,
		Labels: []Label{{"result", []string{
			"SUCCESS", "COPY_BINARIES_FAILURE", "CREATE_KUBECONFIG_FAILURE",
			"CREATE_CNI_CONFIG_FAILURE",
		}}},
		Help: "Installations that changed something or failed, under istio-cni's name",
	},
	{
		Name: "istio_cni_repair_pods_repaired_total", Type: Counter,
		Labels: []Label{
			{"type", []string{"repair", "delete", "label"}},
			{"result", []string{"success", "skip", "fail"}},
		},
		Help: "Attempts to repair, delete or label pods that started without the plugin, " +
			"under istio-cni's name",
	},
	{
		Name: "ztunnel_connected", Type: Gauge,
		Help: "Connections of ztunnel to the agent",
	},
}
