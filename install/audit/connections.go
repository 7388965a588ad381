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
func (v *reconciliation) endConnections(ns Namespace) string {
	r, err := ns.EndConnections(v.rulesets.mustRuleset(v.desired.redirection), v.Connections)
	var outcomes []string
	add := func(n int, result metrics.ConnectionResult, outcome string) {
		if n > 0 {
			v.Metrics.Count(metrics.BypassingConnections(result), float64(n))
			outcomes = append(outcomes, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	add(r.Ended, metrics.ConnectionEnded, "were ended")
	add(r.Kept, metrics.ConnectionKept, "were kept, because the agent is configured to keep them")
	add(r.Failed, metrics.ConnectionFailed, "could not be ended")
	add(r.Undecided, metrics.ConnectionUndecided,
		"were kept, because the agent cannot determine whether they bypass it")
	if err != nil {
		v.Metrics.Count(metrics.BypassingConnections(metrics.ConnectionError), 1)
		v.Log.Warn("connections that bypass the proxy may remain", zap.Stringer("pod", v.item.Ref),
			zap.Error(err))
		outcomes = append(outcomes, "not all could be checked: "+err.Error())
	}
	if len(outcomes) == 0 {
		return ""
	}
	v.Log.Info("connections bypassed the proxy", zap.Stringer("pod", v.item.Ref),
		zap.Int("ended", r.Ended),
		zap.Int("without_socket_destroyed", r.Broken), zap.Int("kept", r.Kept),
		zap.Int("failed", r.Failed),
		zap.Int("undecided", r.Undecided), zap.String("example", r.Example),
		zap.String("undecided_example", r.UndecidedExample))
	text := "; of the connections that were opened before and bypass the proxy, " +
		strings.Join(outcomes, ", ")
	if r.Example != "" {
		text += fmt.Sprintf(" (for example %s)", r.Example)
	}
	return text
}
