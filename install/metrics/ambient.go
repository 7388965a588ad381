package metrics

var ambientMetrics = []Metric{
	{
		Name: "sluice_ambient_pods", Type: Gauge,
		Labels: []Label{{"state", []string{"enrolled", "pending"}}},
		Help: "Pods of the node in ambient mode; a pod is enrolled if it has rules, ztunnel has " +
			"acknowledged it, and its probes have the source address that is not captured",
	},
	{
		Name: "sluice_ambient_enrollments_total", Type: Counter, Labels: []Label{result},
		Help: "Attempts to enroll a pod in ambient mode, in its ADD or while it runs",
	},
	{
		Name: "sluice_host_rules_in_place", Type: Gauge,
		Help: "Whether the last comparison found the node's rules for probes of pods in ambient " +
			"mode as desired: 1 or 0",
	},
	{
		Name: "sluice_ztunnel_pods_unacknowledged", Type: Gauge,
		Help: "Pods in ambient mode that no connected ztunnel has acknowledged",
	},
	{
		Name: "sluice_host_rules_events_total", Type: Counter,
		Labels: []Label{{"event", []string{
			"repaired", "conflict", "failed", "kubelet-changed", "kubelet-missing", "by-user", "unwatched",
		}}},
		Help: "Events of the node's rules for probes of pods in ambient mode; " +
			"repaired means that another program had changed them, " +
			"conflict that it does so repeatedly",
	},
}

// HostRulesInPlace returns the series of sluice_host_rules_in_place.
func HostRulesInPlace() GaugeSeries { return gauge("sluice_host_rules_in_place") }

// ZtunnelPodsUnacknowledged returns the series of sluice_ztunnel_pods_unacknowledged.
func ZtunnelPodsUnacknowledged() GaugeSeries { return gauge("sluice_ztunnel_pods_unacknowledged") }

// AmbientPods returns the series of sluice_ambient_pods.
func AmbientPods(state string) GaugeSeries { return gauge("sluice_ambient_pods", state) }

// AmbientEnrollments returns the series of sluice_ambient_enrollments_total.
func AmbientEnrollments(r Result) CounterSeries {
	return counter("sluice_ambient_enrollments_total", string(r))
}

// HostRulesEvents returns the series of sluice_host_rules_events_total.
func HostRulesEvents(event string) CounterSeries {
	return counter("sluice_host_rules_events_total", event)
}
