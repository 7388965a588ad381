package metrics

var auditMetrics = []Metric{
	{
		Name: "sluice_pods", Type: Gauge,
		Labels: []Label{{"state", []string{"redirected", "drifted", "unprotected", "unknown"}}},
		Help: "Mesh pods on the node by the state of their redirection; unprotected pods have none, " +
			"of unknown ones no network namespace was found, or it cannot be read, or the effect of foreign rules cannot be decided",
	},
	{
		Name: "sluice_pods_foreign_rules", Type: Gauge,
		Labels: []Label{{"effect", []string{"bypass", "unknown"}}},
		Help: "Mesh pods on the node whose own rules are correct, and in which foreign rules let captured traffic " +
			"bypass the proxy, or may do so: unknown if that cannot be decided",
	},
	{
		Name: "sluice_audits_total", Type: Counter,
		Labels: []Label{{"result", []string{"equal", "drift", "error"}}},
		Help:   "Comparisons of a pod's rules with what they should be",
	},
	{
		Name: "sluice_audit_duration_seconds", Type: Histogram, Buckets: durations,
		Help: "Time of one comparison",
	},
	{
		Name: "sluice_audit_last_completed_timestamp_seconds", Type: Gauge,
		Help: "When all pods of the node were last audited, in seconds since 1970",
	},
	{
		Name: "sluice_drifts_total", Type: Counter,
		Labels: []Label{{
			"kind", []string{"absent", "missing", "extra", "changed", "reordered", "routes"},
		}},
		Help: "Differences found in running pods; absent means that no rule was left",
	},
	{
		Name: "sluice_repairs_total", Type: Counter,
		Labels: []Label{
			{"cause", []string{"drift", "race", "bypass"}},
			{"action", []string{"repair", "label", "delete"}},
			result,
		},
		Help: "What was done about pods without their redirection; race means that the pod started while the plugin was not in the chain, " +
			"bypass that the runtime did not call it",
	},
	{
		Name: "sluice_bypassed_pods_total", Type: Counter,
		Help: "Mesh pods whose sandbox the runtime made without calling the plugin, although the node's CNI chain was as it should be",
	},
	{
		Name: "sluice_repair_duration_seconds", Type: Histogram,
		Labels: []Label{{"cause", []string{"drift", "race", "bypass"}}}, Buckets: durations,
		Help: "Time from seeing that a pod lacks its redirection until it was verified to have it",
	},
	{
		Name: "sluice_bypassing_connections_total", Type: Counter,
		Labels: []Label{{"result", []string{"ended", "kept", "failed", "undecided", "error"}}},
		Help: "Connections that bypass the proxy since they were opened before a pod was repaired, by what became of them; " +
			"undecided ones stay since it is not known whether they do, and an error is a pod of which they could not all be looked at",
	},
	{
		Name: "sluice_events_lost_total", Type: Counter,
		Labels: []Label{{"source", []string{"nftables", "files", "pods"}}},
		Help:   "How often a source of events overflowed or broke, so that everything had to be looked at",
	},
}

var operateMetrics = []Metric{
	{
		Name: "sluice_build_info", Type: Gauge,
		Labels: []Label{{Name: "version"}, {Name: "goversion"}},
		Help:   "Always 1, with the version of the agent",
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
		Help: "The same as sluice_install_ready, under the name that istio-cni has",
	},
	{
		Name: "istio_cni_installs_total", Type: Counter,
		Labels: []Label{{"result", []string{
			"SUCCESS", "COPY_BINARIES_FAILURE", "CREATE_KUBECONFIG_FAILURE",
			"CREATE_CNI_CONFIG_FAILURE",
		}}},
		Help: "Installations that changed something, under the name that istio-cni has",
	},
	{
		Name: "istio_cni_repair_pods_repaired_total", Type: Counter,
		Labels: []Label{
			{"type", []string{"repair", "delete", "label"}},
			{"result", []string{"success", "skip", "fail"}},
		},
		Help: "Pods of which something was done because they started before the plugin was there, under the name that istio-cni has",
	},
}
