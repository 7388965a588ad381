package metrics

import "strings"

// A series is a time series: the name of a metric and the values of its labels, in the order of the
// metric's labels.
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

// The series of the three types of metrics. Only this package creates series, so other packages
// cannot use a name that is not a metric.
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

func (CounterSeries) metricType() Type   { return Counter }
func (GaugeSeries) metricType() Type     { return Gauge }
func (HistogramSeries) metricType() Type { return Histogram }

type anySeries interface {
	CounterSeries | GaugeSeries | HistogramSeries
	metricType() Type
}

var all []Metric // in the order of their definitions

// define adds a metric of the type of S to [All]. It returns a function that returns the series of
// the metric with the given values of the labels. define0 to define3 do the same for a metric with
// that number of labels, and also check the types of the values.
func define[S anySeries](m Metric) func(labels ...string) S {
	m.Type = S{}.metricType()
	all = append(all, m)
	return func(labels ...string) S { return S{series{m.Name, labels}} }
}

func define0[S anySeries](m Metric) func() S {
	of := define[S](m)
	return func() S { return of() }
}

func define1[S anySeries, A ~string](m Metric) func(A) S {
	of := define[S](m)
	return func(a A) S { return of(string(a)) }
}

func define2[S anySeries, A, B ~string](m Metric) func(A, B) S {
	of := define[S](m)
	return func(a A, b B) S { return of(string(a), string(b)) }
}

func define3[S anySeries, A, B, C ~string](m Metric) func(A, B, C) S {
	of := define[S](m)
	return func(a A, b B, c C) S { return of(string(a), string(b), string(c)) }
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

	SourceNFTables   Source = "nftables"
	SourceFiles      Source = "files"
	SourcePods       Source = "pods"
	SourceNamespaces Source = "namespaces"

	InstallationSuccess    Installation = "SUCCESS"
	InstallationBinaries   Installation = "COPY_BINARIES_FAILURE"
	InstallationKubeconfig Installation = "CREATE_KUBECONFIG_FAILURE"
	InstallationConfig     Installation = "CREATE_CNI_CONFIG_FAILURE"
)
