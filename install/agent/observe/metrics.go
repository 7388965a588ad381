package observe

import (
	"net/http"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-mesh/sluice/install/metrics"
)

// Metrics contains a collector for each metric of package metrics, and the client library's
// collectors for the process and Go's runtime: process_open_fds, process_resident_memory_bytes,
// go_goroutines and others. It is safe for concurrent use.
type Metrics struct {
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*prometheus.GaugeVec
	histograms map[string]*prometheus.HistogramVec
	replaced   map[string]*replacedCounter
}

// NewMetrics returns the collectors of an agent; version is the version of its program. Counters
// with a fixed set of label values begin at 0, so that the first event is an increase; other
// counters are absent before the first event.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(), counters: map[string]*prometheus.CounterVec{},
		gauges:     map[string]*prometheus.GaugeVec{},
		histograms: map[string]*prometheus.HistogramVec{},
		replaced:   map[string]*replacedCounter{},
	}
	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(collectors.WithGoCollectorMemStatsMetricsDisabled()),
	)
	for _, family := range metrics.All() {
		m.registry.MustRegister(m.newCollector(family))
	}
	m.Set(metrics.BuildInfo(version, runtime.Version()), 1)
	return m
}

// newCollector creates the collector of a metric, and stores it in m.
func (m *Metrics) newCollector(f metrics.Metric) prometheus.Collector {
	switch {
	case f.Replaced:
		r := newReplacedCounter(f)
		m.replaced[f.Name] = r
		return r
	case f.Type == metrics.Counter:
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help},
			f.LabelNames())
		for _, values := range combinations(f.Labels) {
			c.WithLabelValues(values...)
		}
		m.counters[f.Name] = c
		return c
	case f.Type == metrics.Gauge:
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help},
			f.LabelNames())
		m.gauges[f.Name] = g
		return g
	}
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: f.Name, Help: f.Help, Buckets: f.Buckets,
	}, f.LabelNames())
	m.histograms[f.Name] = h
	return h
}

// combinations returns all combinations of label values, or nil if a label has no fixed set of
// values.
func combinations(labels []metrics.Label) [][]string {
	rows := [][]string{nil}
	for _, l := range labels {
		var longer [][]string
		for _, row := range rows {
			for _, v := range l.Values {
				longer = append(longer, append(slices.Clip(row), v))
			}
		}
		rows = longer
	}
	return rows
}

// Count adds to a counter; n must not be negative.
func (m *Metrics) Count(s metrics.CounterSeries, n float64) {
	m.counters[s.Name()].WithLabelValues(s.Labels()...).Add(n)
}

// Replace sets all series of a counter, and removes series that are not among the values. The
// counter must have [metrics.Metric.Replaced] set.
func (m *Metrics) Replace(name string, values []metrics.CounterValue) {
	m.replaced[name].set(values)
}

// Set sets a gauge.
func (m *Metrics) Set(s metrics.GaugeSeries, value float64) {
	m.gauges[s.Name()].WithLabelValues(s.Labels()...).Set(value)
}

// SetBool sets a gauge to 1 or 0.
func (m *Metrics) SetBool(s metrics.GaugeSeries, value bool) {
	number := 0.0
	if value {
		number = 1
	}
	m.Set(s, number)
}

// Observe adds an observation to a histogram.
func (m *Metrics) Observe(s metrics.HistogramSeries, value float64) {
	m.histograms[s.Name()].WithLabelValues(s.Labels()...).Observe(value)
}

// Values returns the values of a counter or gauge with one label, by label value. The values are
// rounded down, and include zeros. The result is nil if the metrics cannot be gathered. The
// function series returns the metric's series for a label value, for example [metrics.Drifts].
func Values[L ~string, S interface{ Name() string }](
	m *Metrics, series func(label L) S,
) map[string]int {
	families, err := m.registry.Gather()
	if err != nil {
		return nil
	}
	name := series("").Name()
	values := map[string]int{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				values[l.GetValue()] += int(
					metric.GetCounter().GetValue() + metric.GetGauge().GetValue())
			}
		}
	}
	return values
}

// Handler serves the metrics uncompressed: they take about 30 KB, and a compressor would keep a
// megabyte of memory. It calls refresh before each reply, to update metrics that change with time.
func (m *Metrics) Handler(refresh func()) http.Handler {
	inner := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refresh()
		inner.ServeHTTP(w, r)
	})
}
