package agent

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/serve"
	"github.com/sluice-mesh/sluice/install/settings"
	"github.com/sluice-mesh/sluice/plugin/agent"
	"github.com/sluice-mesh/sluice/plugin/text"
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

// policy returns the configuration that the plugin may request.
func policy(element []byte) func() json.RawMessage {
	return func() json.RawMessage { return slices.Clone(element) }
}

// podsUnseen reports that the node's pods cannot be watched, perhaps because of a missing
// permission.
func (a *Agent) podsUnseen(err error) {
	a.reporter.reportPodsUnseen(err)
	a.updateEvents()
}

func (r *reporter) reportPodsUnseen(err error) {
	r.metrics.Count(metrics.EventsLost(metrics.SourcePods), 1)
	r.log.Warn("cannot watch the node's pods; each is requested when it is needed", zap.Error(err))
}

func (r *reporter) reportDaemonSetUnseen(err error) {
	r.log.Warn("cannot watch the agent's DaemonSet; the plugin stays installed unless the API server replies when the agent ends", zap.Error(err))
}

func (r *reporter) reportServeError(err error) { r.log.Warn("the agent's socket", zap.Error(err)) }

func (r *reporter) countAnswer(result serve.Result, duration time.Duration) {
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

// logPluginLine writes a line of the plugin's log to the agent's log, with its level.
func (r *reporter) logPluginLine(line []byte) {
	var head struct{ Level, Msg string }
	level := zapcore.InfoLevel
	if json.Unmarshal(line, &head) == nil {
		if parsed, err := zapcore.ParseLevel(head.Level); err == nil {
			level = min(parsed, zapcore.ErrorLevel) // the level fatal would end the agent
		}
	}
	if entry := r.log.Check(level, "plugin: "+text.Printable(head.Msg)); entry != nil {
		entry.Write(zap.Any("plugin", json.RawMessage(line)))
	}
}

// partOf returns the part of the installation that a file belongs to.
func (r *reporter) partOf(path string) string {
	if filepath.Dir(path) == filepath.Clean(r.binDir) {
		return observe.Binary
	}
	return observe.Configuration
}
