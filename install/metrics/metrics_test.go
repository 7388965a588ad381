package metrics_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/metrics/metricstest"
)

var (
	metricName = regexp.MustCompile(`^(sluice|istio_cni|ztunnel)(_[a-z]+)+$`)
	labelName  = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
)

func TestNamesFollowTheConventions(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range metrics.All() {
		switch {
		case seen[m.Name]:
			t.Errorf("%s: duplicate in the table", m.Name)
		case !metricName.MatchString(m.Name):
			t.Errorf("%s: the name does not match %s", m.Name, metricName)
		case (m.Type == metrics.Counter) != strings.HasSuffix(m.Name, "_total"):
			t.Errorf("%s: only the names of counters end in _total, and this is a %s", m.Name, m.Type)
		case m.Help == "" || strings.HasSuffix(m.Help, "."):
			t.Errorf("%s: help %q is empty or ends in a full stop", m.Name, m.Help)
		case (m.Type == metrics.Histogram) != (len(m.Buckets) > 0):
			t.Errorf("%s: this %s has %d buckets; histograms must have buckets, and other types none", m.Name, m.Type, len(m.Buckets))
		case m.Type == metrics.Histogram && !strings.HasSuffix(m.Name, "_seconds") &&
			!strings.HasSuffix(m.Name, "_bytes"):
			t.Errorf("%s: the histogram has no unit, want a name that ends in _seconds or _bytes", m.Name)
		case !slices.IsSorted(m.Buckets) ||
			len(slices.Compact(slices.Clone(m.Buckets))) != len(m.Buckets):
			t.Errorf("%s: buckets %v, want ascending ones", m.Name, m.Buckets)
		}
		seen[m.Name] = true
	}
}

// TestSeriesAreFew bounds the combinations of label values, each of which is a time series on every
// node.
func TestSeriesAreFew(t *testing.T) {
	for _, m := range metrics.All() {
		series := 1
		if m.Type == metrics.Histogram {
			series = len(m.Buckets) + 3 // the bucket +Inf, the sum, and the count
		}
		for i, l := range m.Labels {
			if !labelName.MatchString(l.Name) || slices.Contains(m.LabelNames()[:i], l.Name) {
				t.Errorf("%s: the label %q is invalid or a duplicate", m.Name, l.Name)
			}
			series *= max(1, len(l.Values))
		}
		if series > 180 {
			t.Errorf("%s: up to %d series on every node, want at most 180", m.Name, series)
		}
	}
}

func TestFind(t *testing.T) {
	m, found := metricstest.Find("sluice_adds_total")
	if !found || !slices.Equal(m.LabelNames(), []string{"result", "decision", "backend"}) {
		t.Errorf("sluice_adds_total: found %t, %v; want true and the labels result, decision and backend", found, m)
	}
	if m, found := metricstest.Find("sluice_add_total"); found {
		t.Errorf("found %v, want no metric sluice_add_total", m)
	}
}
