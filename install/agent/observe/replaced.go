package observe

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-mesh/sluice/install/metrics"
)

// replacedCounter collects a counter whose series are all set together. It is safe for concurrent
// use.
type replacedCounter struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	values []metrics.CounterValue
}

func newReplacedCounter(f metrics.Metric) *replacedCounter {
	return &replacedCounter{desc: prometheus.NewDesc(f.Name, f.Help, f.LabelNames(), nil)}
}

func (r *replacedCounter) set(values []metrics.CounterValue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = values
}

// Describe implements prometheus.Collector.
func (r *replacedCounter) Describe(descs chan<- *prometheus.Desc) { descs <- r.desc }

// Collect implements prometheus.Collector.
func (r *replacedCounter) Collect(collected chan<- prometheus.Metric) {
	r.mu.Lock()
	values := r.values
	r.mu.Unlock()
	for _, v := range values {
		collected <- prometheus.MustNewConstMetric(r.desc, prometheus.CounterValue, v.Value,
			v.Labels()...)
	}
}
