package metrics

// Metrics of ambient mode.
var (
	AmbientPods = define1[GaugeSeries, string](Metric{
		Name:   "sluice_ambient_pods",
		Labels: []Label{{"state", []string{"enrolled", "pending"}}},
		Help: "Pods of the node in ambient mode; a pod is enrolled if it has rules, ztunnel has " +
			"acknowledged it, and its probes have the source address that is not captured",
	})
	AmbientEnrollments = define1[CounterSeries, Result](Metric{
		Name: "sluice_ambient_enrollments_total", Labels: []Label{result},
		Help: "Attempts to enroll a pod in ambient mode, in its ADD or while it runs",
	})
	HostRulesInPlace = define0[GaugeSeries](Metric{
		Name: "sluice_host_rules_in_place",
		Help: "Whether the last comparison found the node's rules for probes of pods in ambient " +
			"mode as desired: 1 or 0",
	})
	ZtunnelPodsUnacknowledged = define0[GaugeSeries](Metric{
		Name: "sluice_ztunnel_pods_unacknowledged",
		Help: "Pods in ambient mode that no connected ztunnel has acknowledged",
	})
	HostRulesEvents = define1[CounterSeries, string](Metric{
		Name: "sluice_host_rules_events_total",
		Labels: []Label{{"event", []string{
			"repaired", "conflict", "failed", "kubelet-changed", "kubelet-missing", "by-user", "unwatched",
		}}},
		Help: "Events of the node's rules for probes of pods in ambient mode; " +
			"repaired means that another program had changed them, " +
			"conflict that it does so repeatedly",
	})
)
