package metrics

import "github.com/sluice-mesh/sluice/plugin/agent"

var installMetrics = []Metric{
	{
		Name: "sluice_install_ready", Type: Gauge,
		Help: "Whether an ADD on this node would succeed now, as readyz says: 1 or 0",
	},
	{
		Name: "sluice_install_part_ready", Type: Gauge, Labels: []Label{readyPart},
		Help: "Whether a part of what an ADD needs is as it should be: 1 or 0; of kubeconfig and socket one is enough",
	},
	{
		Name: "sluice_install_writes_total", Type: Counter, Labels: []Label{part, result},
		Help: "How often a part of the installation was written",
	},
	{
		Name: "sluice_chain_bypassed", Type: Gauge,
		Help: "Whether the runtime uses a configuration without the plugin, as far as its directory or a pod that it has started shows: 1 or 0",
	},
	{
		Name: "sluice_node_directory", Type: Gauge,
		Labels: []Label{
			{"directory", []string{"configuration", "binary"}},
			{"state", []string{"same", "replaced", "gone", "unknown"}},
		},
		Help: "Whether the directory that the agent keeps is the one that the runtime reads: 1 for the state that it has; " +
			"unknown means that the agent does not see the node's directories",
	},
	{
		Name: "sluice_conflicting_writes_total", Type: Counter, Labels: []Label{{Name: "writer"}},
		Help: "How often another program removed the plugin from the configuration, or its executable, by the name of the program",
	},
	{
		Name: "sluice_token_age_seconds", Type: Gauge,
		Help: "Age of the service account token that the plugin uses",
	},
	{
		Name: "sluice_token_expiry_timestamp_seconds", Type: Gauge,
		Help: "When the service account token that the plugin uses expires, in seconds since 1970",
	},
	{
		Name: "sluice_token_publications_total", Type: Counter,
		Labels: []Label{{"result", []string{"success", "refused", "error"}}},
		Help:   "How often a token was tested for publication; refused means that the API server did not take it",
	},
}

var addMetrics = []Metric{
	{
		Name: "sluice_adds_total", Type: Counter, Labels: []Label{result, decision, backend},
		Help: "Pods that the plugin was called for, by what became of them",
	},
	{
		Name: "sluice_add_reasons_total", Type: Counter,
		Labels: []Label{{"reason", agent.Reasons()}},
		Help:   "Pods that the plugin was called for, by the reason of what was decided",
	},
	{
		Name: "sluice_uncaptured_pods_total", Type: Counter,
		Labels: []Label{{"family", agent.Families()}},
		Help:   "Pods of the mesh of which an address family passes the proxy, since Istio's rules leave it uncaptured",
	},
	{
		Name: "sluice_add_duration_seconds", Type: Histogram, Labels: []Label{result, decision},
		Buckets: durations,
		Help:    "Time that the plugin took for a pod",
	},
	{
		Name: "sluice_transaction_bytes", Type: Histogram, Labels: []Label{backend}, Buckets: sizes,
		Help: "Size of what was sent to the kernel for a pod",
	},
	{
		Name: "sluice_serve_requests_total", Type: Counter,
		Labels: []Label{{
			"result", []string{"success", "fetched", "not_found", "refused", "error"},
		}},
		Help: "Questions of the plugin; fetched means that the API server had to be asked",
	},
	{
		Name: "sluice_serve_duration_seconds", Type: Histogram, Buckets: durations,
		Help: "Time to answer the plugin",
	},
}
