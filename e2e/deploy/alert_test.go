package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"

	"github.com/sluice-mesh/sluice/e2e/deploy"
)

// alertExpr returns the expression of an alert.
func alertExpr(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy.ChartDir, "files/alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation,
		parser.NewParser(parser.Options{}), nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, r := range groups.Groups[0].Rules {
		if r.Alert == name {
			return r.Expr
		}
	}
	t.Fatalf("no alert %s", name)
	return ""
}

// Each row contains the samples of an hour, one per minute.
func TestAlertOnMostlyUncapturedPods(t *testing.T) {
	const metric = `sluice_rule_packets_total{pod_namespace="shop",pod_name="web",`
	for _, tc := range []struct {
		name, samples, want string
	}{
		{
			"most connections are excluded by port",
			metric + `direction="outbound",outcome="captured"} 0+10x60
			` + metric + `direction="outbound",outcome="excluded_port"} 0+30x60`,
			`{pod_name="web", pod_namespace="shop"} 0.75`,
		},
		{
			"several exclusions add up to most connections",
			metric + `direction="outbound",outcome="captured"} 0+40x60
			` + metric + `direction="outbound",outcome="excluded_cidr"} 0+30x60
			` + metric + `direction="outbound",outcome="excluded_owner"} 0+30x60`,
			`{pod_name="web", pod_namespace="shop"} 0.60`,
		},
		{
			"all connections are excluded, and no rule captures",
			metric + `direction="outbound",outcome="excluded_owner"} 0+30x60`,
			`{pod_name="web", pod_namespace="shop"} 1.00`,
		},
		{
			"most connections are captured",
			metric + `direction="outbound",outcome="captured"} 0+30x60
			` + metric + `direction="outbound",outcome="excluded_port"} 0+10x60`, "",
		},
		{
			"DNS queries are captured",
			metric + `direction="outbound",outcome="captured_dns"} 0+30x60
			` + metric + `direction="outbound",outcome="excluded_port"} 0+10x60`, "",
		},
		{
			"the proxy's connections do not count as uncaptured",
			metric + `direction="outbound",outcome="captured"} 0+30x60
			` + metric + `direction="outbound",outcome="proxy"} 0+90x60`, "",
		},
		{
			"inbound connections do not count",
			metric + `direction="outbound",outcome="captured"} 0+30x60
			` + metric + `direction="inbound",outcome="excluded_port"} 0+90x60`, "",
		},
		{
			"few connections cause no alert",
			metric + `direction="outbound",outcome="captured"} 0+1x60
			` + metric + `direction="outbound",outcome="excluded_port"} 0+2x60`, "",
		},
		{
			"totals of a namespace do not count as a pod",
			`sluice_rule_packets_total{pod_namespace="shop",direction="outbound",outcome="excluded_port"} 0+30x60`,
			"",
		},
		{"a pod without counters causes no alert", metric + `direction="outbound",outcome="captured"} _x60`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := evaluate(t, alertExpr(t, "SluicePodMostlyUncaptured"), tc.samples)
			if got != tc.want {
				t.Errorf("the alert's expression returns %q, want %q", got, tc.want)
			}
		})
	}
}

// The age of an audit without a delay is at most audit.interval. The rows contain the interval and
// the time of the oldest audit, in seconds; the samples end at 3600.
func TestAlertOnLateAudits(t *testing.T) {
	for _, tc := range []struct {
		name              string
		interval, audited int
		want              string
	}{
		{"default interval, 14 minutes late", 60, 2700, ""},
		{"default interval, 19 minutes late", 60, 2400, "1200.00"},
		{"interval of 30 minutes, on time", 1800, 1800, ""},
		{"interval of a day, on time", 86400, 3600 - 86400, ""},
		{"interval of 30 minutes, 50 minutes late", 1800, -1200, "4800.00"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			samples := fmt.Sprintf("sluice_audit_interval_seconds %dx60\n\t"+
				"sluice_audit_last_completed_timestamp_seconds %dx60", tc.interval, tc.audited)
			got := evaluate(t, alertExpr(t, "SluiceAuditStands"), samples)
			if value := got[strings.LastIndex(got, " ")+1:]; value != tc.want {
				t.Errorf("the alert's expression returns %q, want the value %q", got, tc.want)
			}
		})
	}
}

// evaluate returns the only series of an expression and its value after an hour of samples, or "".
func evaluate(t *testing.T, expr, samples string) string {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n\t"+samples+"\n")
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	q, err := engine.NewInstantQuery(t.Context(), storage, nil, expr, time.Unix(3600, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	if result.Err != nil {
		t.Fatal(result.Err)
	}
	vector, err := result.Vector()
	if err != nil || len(vector) > 1 {
		t.Fatalf("the expression returns %v, error %v; want at most one series", vector, err)
	}
	if len(vector) == 0 {
		return ""
	}
	return fmt.Sprintf("%s %.2f", vector[0].Metric, vector[0].F)
}
