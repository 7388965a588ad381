package audit_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-mesh/sluice/install/audit"
	"github.com/sluice-mesh/sluice/install/repair"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/record"
)

// TestFromSettings checks the effect of each setting of the audit.
func TestFromSettings(t *testing.T) {
	read := func(variable, value string) audit.Options {
		t.Helper()
		v, err := settings.Read(func(name string) (string, bool) {
			set, ok := map[string]string{
				"NODE_NAME": "node-1", "POD_NAME": "agent", "POD_NAMESPACE": "system", variable: value,
			}[name]
			return set, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		o, err := audit.FromSettings(v)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, row := range []struct {
		variable, value string
		effect          func(o *audit.Options)
	}{
		{"NODE_NAME", "node-2", func(o *audit.Options) { o.NodeName = "node-2" }},
		{"SLUICE_AUDIT", "false", func(o *audit.Options) { o.Compare = false }},
		{"SLUICE_AUDIT_REPAIR", "false", func(o *audit.Options) { o.Repair = false }},
		{"SLUICE_AUDIT_INTERVAL", "7m", func(o *audit.Options) { o.Interval = 7 * time.Minute }},
		{"SLUICE_AUDIT_END_CONNECTIONS", "false", func(o *audit.Options) { o.Connections.CountOnly = true }},
		{"SLUICE_COUNTER_METRICS", "pod", func(o *audit.Options) { o.Counters = audit.PodCounters }},
		{"SLUICE_COUNTER_METRICS_PODS", "7", func(o *audit.Options) { o.TopPods = 7 }},
		{"REPAIR_REPAIR_PODS", "false", func(o *audit.Options) { o.Policy.InPlace = false }},
	} {
		want := read("", "")
		row.effect(&want)
		if diff := cmp.Diff(want, read(row.variable, row.value),
			cmpopts.IgnoreUnexported(repair.Policy{}),
			cmpopts.EquateComparable(record.Store{}, repair.Store{})); diff != "" {
			t.Errorf("%s=%s (-want +got):\n%s", row.variable, row.value, diff)
		}
	}
}
