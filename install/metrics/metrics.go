// Package metrics contains a table of the node agent's metrics: names, help, labels and buckets.
// Each entry is a function that returns a series of the metric for given values of its labels. The
// agent creates its collectors from the table, and the dashboard and the alert rules are tested
// against it. Names follow the conventions of Prometheus: units are base units, and the names of
// counters end in _total. Metrics whose names begin with istio_cni_ or ztunnel_ have the same
// meaning as in istio-cni, so that existing alerts keep working.
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

// A Metric is one entry of the table.
type Metric struct {
	Name string
	Type Type
	// Help is one sentence without a full stop.
	Help string
	// Labels contains the labels in the order of a collector's label values.
	Labels []Label
	// Buckets contains the upper bounds of a histogram, in the unit of its name.
	Buckets []float64
	// Replaced is set for a counter whose series are all set together. A series that is not set
	// again is removed.
	Replaced bool
}

// A Label is one dimension of a metric.
type Label struct {
	Name string
	// Values contains all possible values. It is empty if they are not known in advance: names of
	// programs, versions, and names of namespaces and pods of the node. The number of these values
	// is limited nevertheless.
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
func All() []Metric { return slices.Clone(all) }
