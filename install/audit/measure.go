package audit

import (
	"time"

	"github.com/sluice-mesh/sluice/compat/foreign"
)

// Measure sets the metrics that say how the pods stand now, if any are looked at.
func (a *Auditor) Measure() {
	if !a.audits() {
		return
	}
	counts, effects := map[State]int{}, map[foreign.Verdict]int{}
	oldest := time.Now()
	a.mu.Lock()
	complete := true
	for _, p := range a.pods {
		if p.state == "" {
			continue
		}
		counts[p.state]++
		effects[p.foreign]++
		switch {
		case p.state == Unknown:
		case p.audited.IsZero():
			complete = false
		case p.audited.Before(oldest):
			oldest = p.audited
		}
	}
	a.mu.Unlock()
	for _, s := range States() {
		a.Metrics.Set("sluice_pods", float64(counts[s]), string(s))
	}
	for _, effect := range []foreign.Verdict{foreign.Bypassed, foreign.Unknown} {
		a.Metrics.Set("sluice_pods_foreign_rules", float64(effects[effect]), string(effect))
	}
	if a.Compare && complete && a.Pods.Synced() {
		a.Metrics.Set("sluice_audit_last_completed_timestamp_seconds", float64(oldest.UnixNano())/1e9)
	}
}
