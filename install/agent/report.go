package agent

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/serve/podcache"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/rules"
)

// A reporter writes log messages and metrics.
type reporter struct {
	log       *zap.Logger
	metrics   *observe.Metrics
	hostPaths *strings.Replacer
	binDir    string

	mu           sync.Mutex
	lastReported lastReported
}

func newReporter(v settings.Values, log *zap.Logger, m *observe.Metrics) *reporter {
	return &reporter{
		log: log, metrics: m, hostPaths: hostPaths(v), binDir: v.Text("SLUICE_MOUNTED_BIN_DIR"),
	}
}

// reportUnwatched reports that the node's pods, or namespaces, cannot be watched, perhaps because
// of a missing permission.
func (a *Agent) reportUnwatched(resource string, err error) {
	if resource == podcache.Namespaces {
		a.metrics.Count(metrics.EventsLost(metrics.SourceNamespaces), 1)
		a.options.Log.Warn("namespaces cannot be watched; the agent requests the namespaces of starting "+
			"pods, and namespaces that are not cached", zap.Error(err))
		return
	}
	a.metrics.Count(metrics.EventsLost(metrics.SourcePods), 1)
	a.options.Log.Warn("the node's pods cannot be watched; each pod is requested when it is needed",
		zap.Error(err))
	a.updateEvents()
}

func (r *reporter) reportDaemonSetUnwatched(err error) {
	r.log.Warn("the agent's DaemonSet cannot be watched; "+
		"the plugin stays installed unless the API server replies when the agent stops",
		zap.Error(err))
}

func (r *reporter) countAnswer(result serve.Outcome, duration time.Duration) {
	r.metrics.Count(metrics.ServeRequests(string(result)), 1)
	r.metrics.Observe(metrics.ServeDuration(), duration.Seconds())
}

func (r *reporter) countAdd(add agent.Add) {
	r.metrics.Count(metrics.Adds(add.Result, add.Decision, add.Backend), 1)
	r.metrics.Count(metrics.AddReasons(add.Reason), 1)
	for _, family := range add.Uncaptured {
		r.metrics.Count(metrics.UncapturedPods(family), 1)
	}
	r.metrics.Observe(metrics.AddDuration(add.Result, add.Decision), add.Duration.Seconds())
	if add.Bytes > 0 {
		r.metrics.Observe(metrics.TransactionBytes(add.Backend), float64(add.Bytes))
	}
}

// logPluginLine writes a line of the plugin's log to the agent's log, with its level, but at most
// at level error.
func (r *reporter) logPluginLine(line []byte) {
	var fields struct{ Level, Msg string }
	level := zapcore.InfoLevel
	if json.Unmarshal(line, &fields) == nil {
		if parsed, err := zapcore.ParseLevel(fields.Level); err == nil {
			level = min(parsed, zapcore.ErrorLevel) // a message at level fatal would end the process
		}
	}
	if entry := r.log.Check(level, "plugin: "+rules.Printable(fields.Msg)); entry != nil {
		entry.Write(zap.Any("plugin", json.RawMessage(line)))
	}
}

// partOf returns [observe.Binary] for a file in the directory of executables, and
// [observe.Configuration] for others.
func (r *reporter) partOf(path string) string {
	if filepath.Dir(path) == filepath.Clean(r.binDir) {
		return observe.Binary
	}
	return observe.Configuration
}
