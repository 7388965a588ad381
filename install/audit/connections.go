package audit

import (
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/metrics"
)

// endConnections ends the connections that were opened before a pod was repaired and bypass the
// proxy. If the agent is configured to keep such connections, endConnections only counts them. It
// returns a text for the event, or an empty string if there is nothing to report.
func (r *auditRun) endConnections(ns Namespace) string {
	report, err := ns.EndConnections(r.rulesets.mustRuleset(r.desired.redirection), r.Connections)
	var outcomes []string
	add := func(n int, result metrics.ConnectionResult, outcome string) {
		if n > 0 {
			r.Metrics.Count(metrics.BypassingConnections(result), float64(n))
			outcomes = append(outcomes, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	add(report.Ended, metrics.ConnectionEnded, "ended")
	add(report.Kept, metrics.ConnectionKept, "kept, as the agent is configured to do")
	add(report.Failed, metrics.ConnectionFailed, "could not be ended")
	add(report.Undecided, metrics.ConnectionUndecided,
		"kept, because it is unknown whether they bypass the proxy")
	if report.Unexamined != "" {
		outcomes = append(outcomes, "others are unknown ("+report.Unexamined+")")
	}
	if err != nil || report.Unexamined != "" {
		r.Metrics.Count(metrics.BypassingConnections(metrics.ConnectionError), 1)
	}
	if err != nil {
		r.Log.Warn("connections that bypass the proxy may remain", zap.Stringer("pod", r.item.Ref),
			zap.Error(err))
		outcomes = append(outcomes, "not all could be checked or ended: "+err.Error())
	}
	if len(outcomes) == 0 {
		return ""
	}
	r.Log.Info("the connections that were opened before the repair were checked",
		zap.Stringer("pod", r.item.Ref),
		zap.Int("ended", report.Ended),
		zap.Int("ended_without_destroying_socket", report.Broken), zap.Int("kept", report.Kept),
		zap.Int("failed", report.Failed),
		zap.Int("undecided", report.Undecided), zap.String("unexamined", report.Unexamined),
		zap.String("example", report.Example),
		zap.String("undecided_example", report.UndecidedExample))
	text := "; connections that were opened before the repair and bypass or may bypass the proxy: " +
		strings.Join(outcomes, ", ")
	if report.Example != "" {
		text += "; a connection that bypassed the proxy: " + report.Example
	}
	return text
}
