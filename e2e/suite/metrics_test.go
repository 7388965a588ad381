package suite_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// monitoringPort is where the agent has its metrics.
const monitoringPort = "15014"

// sample is a line of a metric with the decision to redirect.
var sample = regexp.MustCompile(
	`(?m)^sluice_add_duration_seconds_(sum|count)\{[^}]*decision="redirect"[^}]*\} (\S+)$`)

// addTime is for how many pods of a node the plugin has made rules, and how long that took
// altogether, as the node's agent tells Prometheus.
func (w *world) addTime(t *testing.T, n cluster.Node) (adds int, altogether time.Duration) {
	t.Helper()
	text, err := w.client.CoreV1().Pods(agentNamespace).
		ProxyGet("http", w.agentOn(t, n).Name, monitoringPort, "metrics", nil).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sample.FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == "count" {
			adds += int(value)
		} else {
			altogether += time.Duration(value * float64(time.Second))
		}
	}
	return adds, altogether
}
