package suite_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-mesh/sluice/e2e/cluster"
)

// monitoringPort is the port of the agent's metrics.
const monitoringPort = "15014"

// addSample matches the sum and the count of the durations of ADDs that redirected a pod.
var addSample = regexp.MustCompile(
	`(?m)^sluice_add_duration_seconds_(sum|count)\{[^}]*decision="redirect"[^}]*\} (\S+)$`)

// addDuration returns the number of ADDs that redirected a pod on a node, and their total duration,
// from the agent's metrics.
func (tc *testCluster) addDuration(t *testing.T, n cluster.Node) (adds int, total time.Duration) {
	t.Helper()
	text, err := tc.client.CoreV1().Pods(agentNamespace).
		ProxyGet("http", tc.agentOn(t, n).Name, monitoringPort, "metrics", nil).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range addSample.FindAllStringSubmatch(string(text), -1) {
		value, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == "count" {
			adds += int(value)
		} else {
			total += time.Duration(value * float64(time.Second))
		}
	}
	return adds, total
}
