package metrics

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A series is a time series: the name of a metric of the table and the values of its labels, in the
// order of the table.
type series struct {
	name   string
	labels []string
}

// Name returns the name of the metric.
func (s series) Name() string { return s.name }

// Labels returns the values of the labels, in the order of the table.
func (s series) Labels() []string { return s.labels }

// String returns the name and the values of the labels: sluice_audits_total{drift}.
func (s series) String() string { return s.name + "{" + strings.Join(s.labels, ",") + "}" }

// The series of the three types of metrics. Only functions of this package return series, so other
// packages cannot use a name that is not a metric.
type (
	// CounterSeries is a series of a counter.
	CounterSeries struct{ series }
	// GaugeSeries is a series of a gauge.
	GaugeSeries struct{ series }
	// HistogramSeries is a series of a histogram.
	HistogramSeries struct{ series }
)

// A CounterValue is the value of a series of a counter.
type CounterValue struct {
	CounterSeries
	Value float64
}

type (
	// Result is the result of an action.
	Result string
	// TokenResult is the result of publishing a token.
	TokenResult string
	// AuditResult is the result of an audit.
	AuditResult string
	// DriftKind is a kind of difference.
	DriftKind string
	// Cause is the reason for a repair.
	Cause string
	// Action is an action on a pod.
	Action string
	// PodResult is the result of an action, with istio-cni's values.
	PodResult string
	// ConnectionResult is the result for a connection that bypasses the proxy.
	ConnectionResult string
	// Source is a source of events.
	Source string
	// Installation is a result of an installation, with istio-cni's values.
	Installation string
)

// Label values.
const (
	Success Result = "success"
	Failure Result = "error"

	TokenPublished TokenResult = "success"
	TokenRefused   TokenResult = "refused"
	TokenFailed    TokenResult = "error"

	AuditEqual AuditResult = "equal"
	AuditDrift AuditResult = "drift"
	AuditError AuditResult = "error"

	DriftAbsent DriftKind = "absent"
	DriftRoutes DriftKind = "routes"

	CauseDrift Cause = "drift"
	CauseRace  Cause = "race"
	// CauseBypass means that the runtime created the sandbox without calling the plugin, although
	// the chain was complete.
	CauseBypass Cause = "bypass"

	ActionRepair Action = "repair"

	PodSuccess PodResult = "success"
	PodSkipped PodResult = "skip"
	PodFailed  PodResult = "fail"

	ConnectionEnded     ConnectionResult = "ended"
	ConnectionKept      ConnectionResult = "kept"
	ConnectionFailed    ConnectionResult = "failed"
	ConnectionUndecided ConnectionResult = "undecided"
	ConnectionError     ConnectionResult = "error"

	SourceNFTables Source = "nftables"
	SourceFiles    Source = "files"
	SourcePods     Source = "pods"

	InstallationSuccess    Installation = "SUCCESS"
	InstallationBinaries   Installation = "COPY_BINARIES_FAILURE"
	InstallationKubeconfig Installation = "CREATE_KUBECONFIG_FAILURE"
	InstallationConfig     Installation = "CREATE_CNI_CONFIG_FAILURE"
)

func counter(name string, labels ...string) CounterSeries {
	return CounterSeries{series{name, labels}}
}

func gauge(name string, labels ...string) GaugeSeries { return GaugeSeries{series{name, labels}} }

func histogram(name string, labels ...string) HistogramSeries {
	return HistogramSeries{series{name, labels}}
}

// Installation.

// InstallReady returns the series of sluice_install_ready.
func InstallReady() GaugeSeries { return gauge("sluice_install_ready") }

// IstioInstallReady returns the series of istio_cni_install_ready.
func IstioInstallReady() GaugeSeries { return gauge("istio_cni_install_ready") }

// InstallPartReady returns the series of sluice_install_part_ready.
func InstallPartReady(part string) GaugeSeries { return gauge("sluice_install_part_ready", part) }

// ChainBypassed returns the series of sluice_chain_bypassed.
func ChainBypassed() GaugeSeries { return gauge("sluice_chain_bypassed") }

// TokenAge returns the series of sluice_token_age_seconds.
func TokenAge() GaugeSeries { return gauge("sluice_token_age_seconds") }

// TokenExpiry returns the series of sluice_token_expiry_timestamp_seconds.
func TokenExpiry() GaugeSeries { return gauge("sluice_token_expiry_timestamp_seconds") }

// ConflictingWrites returns the series of sluice_conflicting_writes_total.
func ConflictingWrites(writer string) CounterSeries {
	return counter("sluice_conflicting_writes_total", writer)
}

// IstioInstalls returns the series of istio_cni_installs_total.
func IstioInstalls(r Installation) CounterSeries {
	return counter("istio_cni_installs_total", string(r))
}

// InstallWrites returns the series of sluice_install_writes_total.
func InstallWrites(part string, r Result) CounterSeries {
	return counter("sluice_install_writes_total", part, string(r))
}

// NodeDirectory returns the series of sluice_node_directory.
func NodeDirectory(directory, state string) GaugeSeries {
	return gauge("sluice_node_directory", directory, state)
}

// TokenPublications returns the series of sluice_token_publications_total.
func TokenPublications(r TokenResult) CounterSeries {
	return counter("sluice_token_publications_total", string(r))
}

// The calls of the plugin, by the fields of the plugin's report.

// Adds returns the series of sluice_adds_total.
func Adds(result, decision, backend string) CounterSeries {
	return counter("sluice_adds_total", result, decision, backend)
}

// AddDuration returns the series of sluice_add_duration_seconds.
func AddDuration(result, decision string) HistogramSeries {
	return histogram("sluice_add_duration_seconds", result, decision)
}

// AddReasons returns the series of sluice_add_reasons_total.
func AddReasons(reason string) CounterSeries { return counter("sluice_add_reasons_total", reason) }

// UncapturedPods returns the series of sluice_uncaptured_pods_total.
func UncapturedPods(family string) CounterSeries {
	return counter("sluice_uncaptured_pods_total", family)
}

// TransactionBytes returns the series of sluice_transaction_bytes.
func TransactionBytes(backend string) HistogramSeries {
	return histogram("sluice_transaction_bytes", backend)
}

// ServeRequests returns the series of sluice_serve_requests_total.
func ServeRequests(result string) CounterSeries {
	return counter("sluice_serve_requests_total", result)
}

// ServeDuration returns the series of sluice_serve_duration_seconds.
func ServeDuration() HistogramSeries { return histogram("sluice_serve_duration_seconds") }

// The audit.

// Pods returns the series of sluice_pods.
func Pods(state string) GaugeSeries { return gauge("sluice_pods", state) }

// PodsForeignRules returns the series of sluice_pods_foreign_rules.
func PodsForeignRules(effect string) GaugeSeries {
	return gauge("sluice_pods_foreign_rules", effect)
}

// Audits returns the series of sluice_audits_total.
func Audits(r AuditResult) CounterSeries { return counter("sluice_audits_total", string(r)) }

// AuditDuration returns the series of sluice_audit_duration_seconds.
func AuditDuration() HistogramSeries { return histogram("sluice_audit_duration_seconds") }

// Drifts returns the series of sluice_drifts_total.
func Drifts(kind DriftKind) CounterSeries { return counter("sluice_drifts_total", string(kind)) }

// BypassedPods returns the series of sluice_bypassed_pods_total.
func BypassedPods() CounterSeries { return counter("sluice_bypassed_pods_total") }

// EventsLost returns the series of sluice_events_lost_total.
func EventsLost(source Source) CounterSeries {
	return counter("sluice_events_lost_total", string(source))
}

// RulePackets returns the series of sluice_rule_packets_total. An empty pod means the sum of all
// pods of the namespace.
func RulePackets(namespace, pod string, role rules.Role) CounterSeries {
	return counter("sluice_rule_packets_total", namespace, pod, role.Direction(), role.Outcome())
}

// AuditLastCompleted returns the series of sluice_audit_last_completed_timestamp_seconds.
func AuditLastCompleted() GaugeSeries {
	return gauge("sluice_audit_last_completed_timestamp_seconds")
}

// Repairs returns the series of sluice_repairs_total.
func Repairs(c Cause, a Action, r Result) CounterSeries {
	return counter("sluice_repairs_total", string(c), string(a), string(r))
}

// RepairDuration returns the series of sluice_repair_duration_seconds.
func RepairDuration(c Cause) HistogramSeries {
	return histogram("sluice_repair_duration_seconds", string(c))
}

// IstioPodsRepaired returns the series of istio_cni_repair_pods_repaired_total.
func IstioPodsRepaired(a Action, r PodResult) CounterSeries {
	return counter("istio_cni_repair_pods_repaired_total", string(a), string(r))
}

// ZtunnelConnected returns the series of ztunnel_connected.
func ZtunnelConnected() GaugeSeries { return gauge("ztunnel_connected") }

// BypassingConnections returns the series of sluice_bypassing_connections_total.
func BypassingConnections(r ConnectionResult) CounterSeries {
	return counter("sluice_bypassing_connections_total", string(r))
}

// The agent itself.

// BuildInfo returns the series of sluice_build_info.
func BuildInfo(version, goVersion string) GaugeSeries {
	return gauge("sluice_build_info", version, goVersion)
}

// ConnectionsRefused returns the series of sluice_connections_refused_total.
func ConnectionsRefused(port string) CounterSeries {
	return counter("sluice_connections_refused_total", port)
}

// LogLinesSuppressed returns the series of sluice_log_lines_suppressed_total.
func LogLinesSuppressed() CounterSeries { return counter("sluice_log_lines_suppressed_total") }
