// Package metrics is the table of the node agent's metrics: names, help, labels and buckets. The
// agent creates its collectors from it, and the dashboard and the alert rules are tested against
// it. Names follow the conventions of Prometheus: base units, counters end in _total. Metrics whose
// names begin with istio_cni_ or ztunnel_ have the meaning that they have in istio-cni, so that
// existing alerts keep working.
package metrics

import "slices"

// A Type is a metric's type.
type Type string

// The types.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// A Metric is one family of the table.
type Metric struct {
	Name string
	Type Type
	// Help is one sentence without a full stop.
	Help string
	// Labels are in the order in which a collector takes their values.
	Labels []Label
	// Buckets are the upper bounds of a histogram, in the unit of its name.
	Buckets []float64
	// Replaced counters have all their series set at once. A series that is not set again ends.
	Replaced bool
}

// A Label is one dimension of a metric.
type Label struct {
	Name string
	// Values are all possible values; empty for names from outside, of which there are few:
	// programs, versions, and pods up to a limit.
	Values []string
}

// LabelNames returns the names of the labels in order.
func (m Metric) LabelNames() []string {
	names := make([]string, len(m.Labels))
	for i, l := range m.Labels {
		names[i] = l.Name
	}
	return names
}

// All returns the metrics.
func All() []Metric {
	return slices.Concat(installMetrics, addMetrics, auditMetrics, ambientMetrics, operateMetrics, istioMetrics)
}
