package metrics

var auditMetrics = []Metric{
	{
		Name: "sluice_pods", Type: Gauge,
		Labels: []Label{{"state", []string{"redirected", "drifted", "unprotected", "unknown"}}},
		Help: "Mesh pods on the node by the state of their redirection; unprotected pods have none, " +
			"of unknown ones no network namespace was found, or it cannot be read",
	},
	{
		Name: "sluice_audits_total", Type: Counter, Labels: []Label{{"result", []string{"equal", "drift", "error"}}},
		Help: "Comparisons of a pod's rules with what they should be",
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
		Labels: []Label{{"kind", []string{"absent", "missing", "extra", "changed", "reordered", "routes"}}},
		Help:   "Differences found in running pods; absent means that no rule was left",
	},
	{
		Name: "sluice_repairs_total", Type: Counter,
		Labels: []Label{{"cause", []string{"drift", "race"}}, {"action", []string{"repair", "label", "delete"}}, result},
		Help:   "What was done about pods without their redirection; race means that the pod started before the plugin was there",
	},
	{
		Name: "sluice_repair_duration_seconds", Type: Histogram, Labels: []Label{{"cause", []string{"drift", "race"}}}, Buckets: durations,
		Help: "Time from seeing that a pod lacks its redirection until it was verified to have it",
	},
	{
		Name: "sluice_events_lost_total", Type: Counter, Labels: []Label{{"source", []string{"nftables", "files", "pods"}}},
		Help: "How often a source of events overflowed or broke, so that everything had to be looked at",
	},
}

var operateMetrics = []Metric{
	{
		Name: "sluice_build_info", Type: Gauge, Labels: []Label{{Name: "version"}, {Name: "goversion"}},
		Help: "Always 1, with the version of the agent",
	},
}

// istioMetrics are those of istio-cni's that alerts and dashboards of its users rest upon.
var istioMetrics = []Metric{
	{
		Name: "istio_cni_install_ready", Type: Gauge,
		Help: "The same as sluice_install_ready, under the name that istio-cni has",
	},
	{
		Name: "istio_cni_installs_total", Type: Counter,
		Labels: []Label{{"result", []string{
			"SUCCESS", "COPY_BINARIES_FAILURE", "CREATE_KUBECONFIG_FAILURE", "CREATE_CNI_CONFIG_FAILURE",
		}}},
		Help: "Installations that changed something, under the name that istio-cni has",
	},
	{
		Name: "istio_cni_repair_pods_repaired_total", Type: Counter,
		Labels: []Label{{"type", []string{"repair", "delete", "label"}}, {"result", []string{"success", "skip", "fail"}}},
		Help:   "Pods of which something was done because they started before the plugin was there, under the name that istio-cni has",
	},
}
