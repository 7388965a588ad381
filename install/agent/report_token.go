package agent

import (
	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/token"
)

// tokenChanged reports a change of the status of the plugin's token.
func (a *Agent) tokenChanged(s token.Status) {
	if a.stopping.Load() {
		return
	}
	a.reporter.reportToken(s)
	a.updateEvents()
}

func (r *reporter) reportToken(s token.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.lastReported.token
	r.lastReported.token = s
	for _, c := range []struct {
		result      metrics.TokenResult
		total, last uint64
	}{
		{metrics.TokenPublished, s.Published, last.Published},
		{metrics.TokenRefused, s.Rejected, last.Rejected},
		{metrics.TokenFailed, s.Failed, last.Failed},
	} {
		if c.total > c.last {
			r.metrics.Count(metrics.TokenPublications(c.result), float64(c.total-c.last))
		}
	}
	if s.Published > last.Published {
		r.log.Info("the plugin's kubeconfig was written", zap.String("token_origin", string(s.Origin)),
			zap.Time("expires", s.Expiry))
		r.metrics.Count(metrics.InstallWrites(observe.Kubeconfig, metrics.Success), 1)
	}
	if s.Failed > last.Failed { // also if there was no token to write
		r.metrics.Count(metrics.InstallWrites(observe.Kubeconfig, metrics.Failure), 1)
		r.metrics.Count(metrics.IstioInstalls(metrics.InstallationKubeconfig), 1)
	}
	r.logChange("the plugin's kubeconfig cannot be written", s.Problem, last.Problem)
	r.logChange("the plugin lacks a permission", s.Forbidden, last.Forbidden)
	// Log only the start and the end of an outage: each error differs, because it contains the
	// duration.
	if s.Unavailable == nil || last.Unavailable == nil {
		r.logChange("the API server does not reply to requests with the plugin's kubeconfig",
			s.Unavailable, last.Unavailable)
	}
}

// logChange logs the start, changes and the end of a problem.
func (r *reporter) logChange(description string, current, last error) {
	switch {
	case current != nil && (last == nil || current.Error() != last.Error()):
		r.log.Warn(description, zap.Error(current))
	case current == nil && last != nil:
		r.log.Info("resolved: " + description)
	}
}
