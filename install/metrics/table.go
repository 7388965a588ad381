package metrics

import "github.com/sluice-mesh/sluice/plugin/agent"

// Metrics of the installation.
var (
	InstallReady = define0[GaugeSeries](Metric{
		Name: "sluice_install_ready",
		Help: "Whether an ADD on this node would succeed, as reported by readyz: 1 or 0",
	})
	InstallPartReady = define1[GaugeSeries, string](Metric{
		Name: "sluice_install_part_ready", Labels: []Label{readyPart},
		Help: "Whether a part that an ADD needs is ready: 1 or 0; " +
			"one of kubeconfig and socket is sufficient",
	})
	InstallWrites = define2[CounterSeries, string, Result](Metric{
		Name: "sluice_install_writes_total", Labels: []Label{part, result},
		Help: "Writes of a part of the installation",
	})
	ChainBypassed = define0[GaugeSeries](Metric{
		Name: "sluice_chain_bypassed",
		Help: "Whether the runtime uses a configuration without the plugin, according to its " +
			"directory and to the pods that it has started: 1 or 0",
	})
	NodeDirectory = define2[GaugeSeries, string, string](Metric{
		Name: "sluice_node_directory",
		Labels: []Label{
			{"directory", []string{"configuration", "binary"}},
			{"state", []string{"same", "replaced", "missing", "unknown"}},
		},
		Help: "Whether the runtime reads the directory that the agent writes: 1 for the current " +
			"state; " +
			"unknown means that the agent cannot see the node's directories",
	})
	ConflictingWrites = define1[CounterSeries, string](Metric{
		Name: "sluice_conflicting_writes_total", Labels: []Label{{Name: "writer"}},
		Help: "Changes of the configuration or of the plugin's executable that the agent had to " +
			"correct, by the program that made them",
	})
	TokenAge = define0[GaugeSeries](Metric{
		Name: "sluice_token_age_seconds",
		Help: "Age of the service account token that the plugin uses",
	})
	TokenExpiry = define0[GaugeSeries](Metric{
		Name: "sluice_token_expiry_timestamp_seconds",
		Help: "Time at which the service account token that the plugin uses expires, in seconds " +
			"since 1970",
	})
	TokenPublications = define1[CounterSeries, TokenResult](Metric{
		Name:   "sluice_token_publications_total",
		Labels: []Label{{"result", []string{"success", "refused", "error"}}},
		Help: "Attempts to publish a token for the plugin; refused means that the API server " +
			"rejected the token",
	})
)

// Metrics of the plugin's calls, by the fields of its report, and of its requests.
var (
	Adds = define3[CounterSeries, string, string, string](Metric{
		Name: "sluice_adds_total", Labels: []Label{result, decision, backend},
		Help: "Calls of ADD, by result",
	})
	AddReasons = define1[CounterSeries, string](Metric{
		Name:   "sluice_add_reasons_total",
		Labels: []Label{{"reason", agent.Reasons()}},
		Help:   "Calls of ADD, by the reason of the decision",
	})
	UncapturedPods = define1[CounterSeries, string](Metric{
		Name:   "sluice_uncaptured_pods_total",
		Labels: []Label{{"family", agent.Families()}},
		Help:   "Mesh pods with an address family that Istio's rules do not capture",
	})
	AddDuration = define2[HistogramSeries, string, string](Metric{
		Name: "sluice_add_duration_seconds", Labels: []Label{result, decision},
		Buckets: durations,
		Help:    "Duration of an ADD",
	})
	TransactionBytes = define1[HistogramSeries, string](Metric{
		Name: "sluice_transaction_bytes", Labels: []Label{backend}, Buckets: sizes,
		Help: "Size of the transaction for a pod",
	})
	ServeRequests = define1[CounterSeries, string](Metric{
		Name: "sluice_serve_requests_total",
		Labels: []Label{{
			"result", []string{"success", "fetched", "not_found", "refused", "error"},
		}},
		Help: "Requests of the plugin; fetched means that the agent requested the object from " +
			"the API server",
	})
	ServeDuration = define0[HistogramSeries](Metric{
		Name: "sluice_serve_duration_seconds", Buckets: durations,
		Help: "Duration of a request of the plugin",
	})
)
