package audit

import (
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/metrics"
)

// endConnections ends the connections of a repaired pod that bypass the proxy because they were
// opened before the repair. It returns a text for the event, or an empty string if there are no
// such connections.
func (r *auditRun) endConnections(ns Namespace) string {
	report, err := ns.EndConnections(r.rulesets.mustRuleset(r.desired.redirection), r.Connections)
	var outcomes []string
	add := func(n int, result metrics.ConnectionResult, outcome string) {
		if n > 0 {
			r.Metrics.Count(metrics.BypassingConnections(result), float64(n))
			outcomes = append(outcomes, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	add(report.Ended, metrics.ConnectionEnded, "were ended")
	add(report.Kept, metrics.ConnectionKept,
		"were kept, because the agent is configured to keep them")
	add(report.Failed, metrics.ConnectionFailed, "could not be ended")
	add(report.Undecided, metrics.ConnectionUndecided,
		"were kept, because the agent cannot determine whether they bypass it")
	if err != nil {
		r.Metrics.Count(metrics.BypassingConnections(metrics.ConnectionError), 1)
		r.Log.Warn("connections that bypass the proxy may remain", zap.Stringer("pod", r.item.Ref),
			zap.Error(err))
		outcomes = append(outcomes, "not all could be checked: "+err.Error())
	}
	if len(outcomes) == 0 {
		return ""
	}
	r.Log.Info("connections bypassed the proxy", zap.Stringer("pod", r.item.Ref),
		zap.Int("ended", report.Ended),
		zap.Int("without_socket_destroyed", report.Broken), zap.Int("kept", report.Kept),
		zap.Int("failed", report.Failed),
		zap.Int("undecided", report.Undecided), zap.String("example", report.Example),
		zap.String("undecided_example", report.UndecidedExample))
	text := "; of the connections that were opened before and bypass the proxy, " +
		strings.Join(outcomes, ", ")
	if report.Example != "" {
		text += fmt.Sprintf(" (for example %s)", report.Example)
	}
	return text
}
