package metrics

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Metrics of running pods: audits, repairs and counted packets.
var (
	Pods = define1[GaugeSeries, string](Metric{
		Name:   "sluice_pods",
		Labels: []Label{{"state", []string{"redirected", "drifted", "unprotected", "unknown"}}},
		Help: "Mesh pods on the node, including force-deleted pods whose sandboxes exist, by the " +
			"state of their redirection; " +
			"unprotected pods have no rules; unknown means that the agent cannot determine the " +
			"state, for example because the network namespace was not found, or because the " +
			"effect of foreign rules cannot be decided",
	})
	PodsForeignRules = define1[GaugeSeries, string](Metric{
		Name:   "sluice_pods_foreign_rules",
		Labels: []Label{{"effect", []string{"bypass", "unknown"}}},
		Help: "Mesh pods on the node whose own rules are correct, and in which foreign rules let " +
			"captured traffic " +
			"bypass the proxy, or may do so: unknown if that cannot be decided",
	})
	Audits = define1[CounterSeries, AuditResult](Metric{
		Name:   "sluice_audits_total",
		Labels: []Label{{"result", []string{"equal", "drift", "error"}}},
		Help: "Audits of pods, by the result of the comparison with the desired rules; error " +
			"means that the rules could not be compared",
	})
	AuditDuration = define0[HistogramSeries](Metric{
		Name: "sluice_audit_duration_seconds", Buckets: durations,
		Help: "Duration of a comparison",
	})
	AuditLastCompleted = define0[GaugeSeries](Metric{
		Name: "sluice_audit_last_completed_timestamp_seconds",
		Help: "Time since which all mesh pods of the node whose state is known have been " +
			"audited, in seconds since 1970",
	})
	AuditInterval = define0[GaugeSeries](Metric{
		Name: "sluice_audit_interval_seconds",
		Help: "Maximum time between two audits of a pod without events",
	})
	Drifts = define1[CounterSeries, DriftKind](Metric{
		Name: "sluice_drifts_total",
		Labels: []Label{{
			"kind", []string{"absent", "missing", "extra", "changed", "reordered", "routes"},
		}},
		Help: "Differences found in running pods; absent means that all rules were missing",
	})
	Repairs = define3[CounterSeries, Cause, Action, Result](Metric{
		Name: "sluice_repairs_total",
		Labels: []Label{
			{"cause", []string{"drift", "race", "bypass"}},
			{"action", []string{"repair", "label", "delete"}},
			result,
		},
		Help: "Actions for pods with missing or changed redirection; " +
			"bypass means that the runtime did not call the plugin although the plugin was in " +
			"the chain, " +
			"race that the pod started without the plugin for another reason",
	})
	BypassedPods = define0[CounterSeries](Metric{
		Name: "sluice_bypassed_pods_total",
		Help: "Mesh pods whose sandbox the runtime created without calling the plugin, although " +
			"the node's CNI chain was complete",
	})
	RepairDuration = define1[HistogramSeries, Cause](Metric{
		Name:   "sluice_repair_duration_seconds",
		Labels: []Label{{"cause", []string{"drift", "race", "bypass"}}}, Buckets: durations,
		Help: "Time from the detection of missing or changed redirection until the repair was " +
			"verified",
	})
	BypassingConnections = define1[CounterSeries, ConnectionResult](Metric{
		Name:   "sluice_bypassing_connections_total",
		Labels: []Label{{"result", []string{"ended", "kept", "failed", "undecided", "error"}}},
		Help: "Connections that bypass the proxy because they were opened before a pod was " +
			"repaired, by result; " +
			"undecided connections are kept because it is unknown whether they bypass it, and error " +
			"counts pods whose connections could not all be examined",
	})
	rulePackets = define[CounterSeries](Metric{
		Name: "sluice_rule_packets_total", Replaced: true,
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
	})
	EventsLost = define1[CounterSeries, Source](Metric{
		Name:   "sluice_events_lost_total",
		Labels: []Label{{"source", []string{"nftables", "files", "pods", "namespaces"}}},
		Help:   "Overflows and failures of an event source; if it is nftables, all pods are audited",
	})
)

// RulePackets returns the series of sluice_rule_packets_total. An empty pod means the sum of all
// pods of the namespace.
func RulePackets(namespace, pod string, role rules.Role) CounterSeries {
	return rulePackets(namespace, pod, role.Direction(), role.Outcome())
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

// Metrics of the agent itself.
var (
	BuildInfo = define2[GaugeSeries, string, string](Metric{
		Name:   "sluice_build_info",
		Labels: []Label{{Name: "version"}, {Name: "goversion"}},
		Help:   "The version of the agent; the value is always 1",
	})
	ConnectionsRefused = define1[CounterSeries, string](Metric{
		Name:   "sluice_connections_refused_total",
		Labels: []Label{{"port", []string{"health", "metrics"}}},
		Help:   "Connections to the agent's ports that were refused because there were too many",
	})
	LogLinesSuppressed = define0[CounterSeries](Metric{
		Name: "sluice_log_lines_suppressed_total",
		Help: "Lines that the agent did not log because there were too many of the same message",
	})
)

// Metrics of istio-cni that users' alerts and dashboards use.
var (
	IstioInstallReady = define0[GaugeSeries](Metric{
		Name: "istio_cni_install_ready",
		Help: "sluice_install_ready under istio-cni's name",
	})
	IstioInstalls = define1[CounterSeries, Installation](Metric{
		Name: "istio_cni_installs_total",
		Labels: []Label{{"result", []string{
			"SUCCESS", "COPY_BINARIES_FAILURE", "CREATE_KUBECONFIG_FAILURE",
			"CREATE_CNI_CONFIG_FAILURE",
		}}},
		Help: "Installations that changed something or failed, under istio-cni's name",
	})
	IstioPodsRepaired = define2[CounterSeries, Action, PodResult](Metric{
		Name: "istio_cni_repair_pods_repaired_total",
		Labels: []Label{
			{"type", []string{"repair", "delete", "label"}},
			{"result", []string{"success", "skip", "fail"}},
		},
		Help: "Attempts to repair, delete or label pods that started without the plugin, " +
			"under istio-cni's name",
	})
	ZtunnelConnected = define0[GaugeSeries](Metric{
		Name: "ztunnel_connected",
		Help: "Connections of ztunnel to the agent",
	})
)
