package audit

import (
	"time"

	"github.com/sluice-mesh/sluice/compat/foreign"
	"github.com/sluice-mesh/sluice/install/metrics"
)

// Measure updates the metrics of the current state of the pods.
func (a *Auditor) Measure() {
	if !a.needsAudits() {
		return
	}
	counts, effects := map[State]int{}, map[foreign.Verdict]int{}
	oldest := time.Now()
	a.mu.Lock()
	allAudited := true
	for _, p := range a.pods {
		if p.state == "" {
			continue
		}
		counts[p.state]++
		effects[p.effect]++
		switch {
		case p.state == Unknown:
		case p.auditedAt.IsZero():
			allAudited = false
		case p.auditedAt.Before(oldest):
			oldest = p.auditedAt
		}
	}
	a.mu.Unlock()
	a.measureCounters()
	for _, s := range States() {
		a.Metrics.Set(metrics.Pods(string(s)), float64(counts[s]))
	}
	for _, effect := range []foreign.Verdict{foreign.Bypassed, foreign.Unknown} {
		a.Metrics.Set(metrics.PodsForeignRules(string(effect)), float64(effects[effect]))
	}
	if a.Compare {
		a.Metrics.Set(metrics.AuditInterval(), a.Interval.Seconds())
	}
	if a.Compare && allAudited && a.Pods.Synced() {
		a.Metrics.Set(metrics.AuditLastCompleted(), float64(oldest.UnixNano())/1e9)
	}
}

// PodsWithUnknownStart returns the number of pods for which it is unknown whether the runtime
// called the plugin: they have not been audited yet, or their network namespaces cannot be found or
// read. A pod counts only after errorBackoff, because its sandbox may be starting or be replaced. A
// pod that existed at the auditor's start counts at once. Each counts until an audit settles it.
// Orphaned pods do not count. listed is false until the auditor knows the node's pods.
func (a *Auditor) PodsWithUnknownStart() (pods int, listed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		if !p.orphaned && !p.startUnknownSince.IsZero() &&
			time.Since(p.startUnknownSince) >= errorBackoff {
			pods++
		}
	}
	return pods, a.listed
}
