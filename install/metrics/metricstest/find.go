// Package metricstest finds metrics for tests.
package metricstest

import (
	"slices"

	"github.com/sluice-mesh/sluice/install/metrics"
)

// Find returns the metric with the name and reports whether there is one.
func Find(name string) (metrics.Metric, bool) {
	all := metrics.All()
	at := slices.IndexFunc(all, func(m metrics.Metric) bool { return m.Name == name })
	if at < 0 {
		return metrics.Metric{}, false
	}
	return all[at], true
}
