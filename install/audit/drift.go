package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/rules"
)

// onDifferences handles differences between the actual and the desired state.
func (v *reconciliation) onDifferences(ctx context.Context, ns Namespace, found compat.Comparison) {
	noRules := false
	if !found.HasRules { // the other backend may have rules
		var err error
		if noRules, err = ns.HasNoRules(); err != nil {
			v.onUnreadable(err)
			return
		}
	}
	v.state = Drifted
	if noRules {
		v.state = Unprotected
	}
	if noRules && v.desired.origin == fromPod {
		v.onUnprotected(ctx, ns)
		return
	}
	text := identify(found.Differences)
	if text != v.unrepaired.text {
		v.count(found.Differences, noRules)
		v.unrepaired.text = text
	}
	if v.unrepaired.since.IsZero() {
		v.unrepaired.since = v.now
		if !v.pending.at.IsZero() {
			v.unrepaired.since = v.pending.at
		}
	}
	description := v.describe(found.Differences, noRules)
	if !v.Compare || !v.Repair {
		v.recordEvent(drifted, description+"; it is not repaired, because repairs are disabled")
		return
	}
	if at := v.unrepaired.nextRepair(text, v.now); at.After(v.now) {
		v.revisitAt = at
		if v.unrepaired.unrepairable != text {
			v.recordEvent(drifted, fmt.Sprintf("%s; another program changes the rules repeatedly; "+
				"the next repair is in %s: find the program that changes them",
				description, at.Sub(v.now).Round(time.Millisecond)))
		}
		return
	}
	v.repair(ns, found, description)
}

// repair repairs the differences and checks the result.
func (v *reconciliation) repair(ns Namespace, found compat.Comparison, description string) {
	v.unrepaired.repairs.ReserveN(v.now, 1)
	unrepairable, err := v.apply(ns, v.backendOf(found), found)
	failure := metrics.Repairs(metrics.CauseDrift, metrics.ActionRepair, metrics.Failure)
	if err != nil {
		v.Metrics.Count(failure, 1)
		v.onFailedRepair()
		v.recordEvent(repairFailed, description+"; the repair failed: "+err.Error())
		return
	}
	if text := identify(unrepairable); text != "" {
		v.Metrics.Count(failure, 1)
		v.state = Drifted
		v.onFailedRepair()
		v.unrepaired.text = text
		if v.unrepaired.unrepairable != text {
			v.unrepaired.unrepairable = text
			v.recordEvent(drifted,
				"the agent cannot repair these differences: "+joinDifferences(unrepairable))
		}
		return
	}
	v.Metrics.Count(metrics.Repairs(metrics.CauseDrift, metrics.ActionRepair, metrics.Success), 1)
	v.Metrics.Observe(metrics.RepairDuration(metrics.CauseDrift),
		time.Since(v.unrepaired.since).Seconds())
	v.Log.Info("pod repaired", zap.Stringer("pod", v.item.Ref), zap.String("reason", description),
		zap.Duration("after", time.Since(v.unrepaired.since)), v.modeField())
	v.recordEvent(redirectRepaired,
		description+"; the redirection is restored"+v.endConnections(ns))
	v.unrepaired.reset()
	v.inspectForeign(ns)
}

// onFailedRepair plans the next visit for the time when another repair is allowed.
func (v *reconciliation) onFailedRepair() {
	v.failures.note(v.uid, &v.unrepaired.failed, v.now)
	v.revisitAt = v.unrepaired.failed.next
}

// apply applies the desired state, and returns the remaining differences.
func (v *reconciliation) apply(
	ns Namespace, backend compat.BackendName, found compat.Comparison,
) ([]rules.Difference, error) {
	rs, err := v.rulesets.ruleset(v.desired.redirection)
	if err != nil {
		return nil, err
	}
	applied, err := ns.Repair(backend, rs, found)
	if err != nil {
		return nil, err
	}
	v.desired.backend = applied.Backend
	found, err = ns.Check(applied.Backend, rs)
	if err != nil {
		return nil, fmt.Errorf("check the result of the repair: %w", err)
	}
	if len(found.Differences) == 0 {
		// The counters of recreated rules begin at 0. This is detected only before they exceed the
		// values of the last visit.
		v.readCounters(found.Packets)
	}
	return found.Differences, nil
}

// count counts the differences by their kinds.
func (v *reconciliation) count(differences []rules.Difference, noRules bool) {
	if noRules {
		v.Metrics.Count(metrics.Drifts(metrics.DriftAbsent), 1)
		return
	}
	for _, d := range differences {
		kind := metrics.DriftKind(d.Kind)
		if d.Where == "routing" {
			kind = metrics.DriftRoutes
		}
		v.Metrics.Count(metrics.Drifts(kind), 1)
	}
}

// describe describes the differences, and the process that last changed rules.
func (v *reconciliation) describe(differences []rules.Difference, noRules bool) string {
	text := "the pod's redirection was changed: " + joinDifferences(differences)
	if noRules {
		text = "the pod's redirection was removed: no rule is left"
	}
	if v.pending.pid != 0 {
		text += fmt.Sprintf(" (the last change of rules is by process %q, pid %d of the node)",
			v.pending.process, v.pending.pid)
	}
	return text
}

// identify returns a text that identifies the differences, or an empty string if there are none.
func identify(differences []rules.Difference) string {
	lines := make([]string, len(differences))
	for i, d := range differences {
		lines[i] = d.String()
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// maxShownDifferences is the maximum number of differences in an event. The command rules check
// lists all.
const maxShownDifferences = 3

func joinDifferences(differences []rules.Difference) string {
	var lines []string
	for _, d := range differences[:min(maxShownDifferences, len(differences))] {
		lines = append(lines, d.String())
	}
	if omitted := len(differences) - maxShownDifferences; omitted > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", omitted))
	}
	return strings.Join(lines, "; ")
}
