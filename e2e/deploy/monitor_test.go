package deploy_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/sluice-mesh/sluice/e2e/deploy"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/metrics/metricstest"
)

func TestMetricsPassPrometheusLint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	for _, m := range metrics.All() {
		values := make([]string, len(m.Labels))
		switch m.Type {
		case metrics.Counter:
			v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help},
				m.LabelNames())
			registry.MustRegister(v)
			v.WithLabelValues(values...).Inc()
		case metrics.Gauge:
			v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help},
				m.LabelNames())
			registry.MustRegister(v)
			v.WithLabelValues(values...).Set(1)
		case metrics.Histogram:
			v := prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: m.Name, Help: m.Help, Buckets: m.Buckets,
			}, m.LabelNames())
			registry.MustRegister(v)
			v.WithLabelValues(values...).Observe(1)
		}
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// external contains labels that no metric declares: Prometheus or a histogram adds them.
var external = []string{"instance", "node", "le", model.MetricNameLabel}

// checkQuery checks that a query uses existing metrics with possible labels and values, and returns
// the names of these metrics.
func checkQuery(t *testing.T, where, query string) (used []string) {
	t.Helper()
	// Replace Grafana's variables.
	query = strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(query)
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Errorf("%s: %v", where, err)
		return nil
	}
	known := slices.Clone(external)
	var grouped []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			grouped = append(grouped, n.Grouping...)
		case *parser.VectorSelector:
			name := strings.TrimSuffix(n.Name, "_bucket")
			m, found := metricstest.Find(name)
			if !found || (m.Type == metrics.Histogram) != (name != n.Name) {
				t.Errorf("%s: no metric %s", where, n.Name)
			}
			used, known = append(used, name), append(known, m.LabelNames()...)
			for _, matcher := range n.LabelMatchers {
				checkMatcher(t, where, m, matcher)
			}
		}
		return nil
	})
	for _, g := range grouped {
		if !slices.Contains(known, g) {
			t.Errorf("%s: grouped by %s, which is a label of none of its metrics", where, g)
		}
	}
	return used
}

func checkMatcher(t *testing.T, where string, m metrics.Metric, matcher *labels.Matcher) {
	t.Helper()
	if slices.Contains(external, matcher.Name) {
		return
	}
	index := slices.IndexFunc(m.Labels, func(l metrics.Label) bool { return l.Name == matcher.Name })
	if index < 0 {
		t.Errorf("%s: %s has no label %s", where, m.Name, matcher.Name)
	} else if values := m.Labels[index].Values; len(values) > 0 &&
		!slices.ContainsFunc(values, matcher.Matches) {
		t.Errorf("%s: label %s of %s cannot be %s", where, matcher.Name, m.Name, matcher.Value)
	}
}

func TestAlertsUseExistingMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy.ChartDir, "files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation,
		parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	for _, err := range errs {
		t.Error(err)
	}
	if len(errs) > 0 {
		return
	}
	seen := map[string]bool{}
	for _, r := range groups.Groups[0].Rules {
		checkQuery(t, r.Alert, r.Expr)
		if seen[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" ||
			r.Annotations["description"] == "" {
			t.Errorf("alert %s is a duplicate or has no severity, summary or description: %+v", r.Alert, r)
		}
		seen[r.Alert] = true
	}
}

type dashboard struct {
	Panels []struct {
		ID      int
		Title   string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func TestDashboardUsesExistingMetrics(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(deploy.ChartDir, "files/dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&d); err != nil {
		t.Fatal(err)
	}
	shown, ids, cells := map[string]bool{}, map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: duplicate panel id %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			for _, name := range checkQuery(t, p.Title, target.Expr) {
				shown[name] = true
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s: overlaps with %q or exceeds the 24 columns", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, m := range metrics.All() {
		// Exclude metrics that only alerts use, and metrics with istio-cni's names.
		if !shown[m.Name] && !strings.HasPrefix(m.Name, "istio_cni_") && m.Name != "ztunnel_connected" &&
			m.Name != "sluice_audit_last_completed_timestamp_seconds" && m.Name != "sluice_audit_interval_seconds" {
			t.Errorf("no panel shows %s", m.Name)
		}
	}
}
