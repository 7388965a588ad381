package metrics

import "github.com/sluice-mesh/sluice/plugin/agent"

var installMetrics = []Metric{
	{
		Name: "sluice_install_ready", Type: Gauge,
		Help: "Whether an ADD on this node would succeed, as reported by readyz: 1 or 0",
	},
	{
		Name: "sluice_install_part_ready", Type: Gauge, Labels: []Label{readyPart},
		Help: "Whether a part that an ADD needs is ready: 1 or 0; " +
			"one of kubeconfig and socket is sufficient",
	},
	{
		Name: "sluice_install_writes_total", Type: Counter, Labels: []Label{part, result},
		Help: "Writes of a part of the installation",
	},
	{
		Name: "sluice_chain_bypassed", Type: Gauge,
		Help: "Whether the runtime uses a configuration without the plugin, according to its " +
			"directory and to the pods that it has started: 1 or 0",
	},
	{
		Name: "sluice_node_directory", Type: Gauge,
		Labels: []Label{
			{"directory", []string{"configuration", "binary"}},
			{"state", []string{"same", "replaced", "missing", "unknown"}},
		},
		Help: "Whether the runtime reads the directory that the agent writes: 1 for the current " +
			"state; " +
			"unknown means that the agent cannot see the node's directories",
	},
	{
		Name: "sluice_conflicting_writes_total", Type: Counter, Labels: []Label{{Name: "writer"}},
		Help: "Removals of the plugin from the configuration, or of its executable, by the " +
			"program that removed it",
	},
	{
		Name: "sluice_token_age_seconds", Type: Gauge,
		Help: "Age of the service account token that the plugin uses",
	},
	{
		Name: "sluice_token_expiry_timestamp_seconds", Type: Gauge,
		Help: "Time at which the service account token that the plugin uses expires, in seconds " +
			"since 1970",
	},
	{
		Name: "sluice_token_publications_total", Type: Counter,
		Labels: []Label{{"result", []string{"success", "refused", "error"}}},
		Help: "Attempts to publish a token for the plugin; refused means that the API server " +
			"rejected the token",
	},
}

var addMetrics = []Metric{
	{
		Name: "sluice_adds_total", Type: Counter, Labels: []Label{result, decision, backend},
		Help: "Pods for which the plugin was called, by result",
	},
	{
		Name: "sluice_add_reasons_total", Type: Counter,
		Labels: []Label{{"reason", agent.Reasons()}},
		Help:   "Pods for which the plugin was called, by the reason of the decision",
	},
	{
		Name: "sluice_uncaptured_pods_total", Type: Counter,
		Labels: []Label{{"family", agent.Families()}},
		Help:   "Mesh pods with an address family that Istio's rules do not capture",
	},
	{
		Name: "sluice_add_duration_seconds", Type: Histogram, Labels: []Label{result, decision},
		Buckets: durations,
		Help:    "Duration of an ADD",
	},
	{
		Name: "sluice_transaction_bytes", Type: Histogram, Labels: []Label{backend}, Buckets: sizes,
		Help: "Size of the transaction for a pod",
	},
	{
		Name: "sluice_serve_requests_total", Type: Counter,
		Labels: []Label{{
			"result", []string{"success", "fetched", "not_found", "refused", "error"},
		}},
		Help: "Requests of the plugin; fetched means that the agent requested the object from " +
			"the API server",
	},
	{
		Name: "sluice_serve_duration_seconds", Type: Histogram, Buckets: durations,
		Help: "Duration of a request of the plugin",
	},
}
