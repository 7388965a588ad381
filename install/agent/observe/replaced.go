package observe

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-mesh/sluice/install/metrics"
)

// replaced collects a counter whose series are all set together. It is safe for concurrent use.
type replaced struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	values []metrics.CounterValue
}

func newReplaced(f metrics.Metric) *replaced {
	return &replaced{desc: prometheus.NewDesc(f.Name, f.Help, f.LabelNames(), nil)}
}

func (r *replaced) set(values []metrics.CounterValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = values
}

// Describe implements prometheus.Collector.
func (r *replaced) Describe(descs chan<- *prometheus.Desc) { descs <- r.desc }

// Collect implements prometheus.Collector.
func (r *replaced) Collect(collected chan<- prometheus.Metric) {
	r.mu.Lock()
	values := r.values
	r.mu.Unlock()
	for _, v := range values {
		collected <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, v.Value,
			v.Labels()...)
	}
}
