package audit

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/rules"
)

// onDifferences handles differences between the actual and the desired state. otherErr is the error
// if the rules of another backend than found.Backend cannot be read, and otherwise nil. It does not
// prevent the repair, because a process of the pod may have caused it.
func (r *auditRun) onDifferences(
	ctx context.Context, ns Namespace, found compat.Comparison, otherErr error,
) {
	noRules := false
	if !found.HasRules { // another backend may have rules
		var err error
		if noRules, err = ns.HasNoRules(); err != nil {
			// A pod that started without the plugin is repaired only if the policy selects it, and
			// only if it is known to have no rules.
			if r.startedWithoutPlugin() {
				r.onUnreadable(err)
				return
			}
			otherErr = err
		}
	}
	r.state = Drifted
	if noRules {
		r.state = Unprotected
	}
	if noRules && r.startedWithoutPlugin() {
		r.unlockRules() // onUnprotected does not use the rules, and may send requests
		r.onUnprotected(ctx, ns)
		return
	}
	digest := digestOf(found.Differences)
	if digest != r.unrepaired.found {
		r.count(found.Differences, noRules)
		r.unrepaired.found = digest
	}
	if r.unrepaired.since.IsZero() {
		r.unrepaired.since = r.now
		if !r.pending.at.IsZero() {
			r.unrepaired.since = r.pending.at
		}
	}
	description := r.describe(found.Differences, noRules)
	if !r.Compare || !r.Repair {
		if otherErr != nil {
			description += "; other rules of Sluice are unknown: " + otherErr.Error()
		}
		r.recordEvent(reasonDrifted, description+"; it is not repaired, because repairs are disabled")
		return
	}
	if at, limited := r.unrepaired.nextRepair(digest, r.now); at.After(r.now) {
		r.nextAuditAt = at
		if limited && r.unrepaired.unrepairable != digest {
			r.recordEvent(reasonDrifted, fmt.Sprintf("%s; another program changes the rules repeatedly; "+
				"the next repair is in %s: find the program that changes them",
				description, at.Sub(r.now).Round(time.Millisecond)))
		}
		return
	}
	r.repair(ctx, ns, found, description)
}

// repair repairs the differences and checks the result. A pod that started without the plugin gets
// its rules in the configured backend.
func (r *auditRun) repair(
	ctx context.Context, ns Namespace, found compat.Comparison, description string,
) {
	r.unrepaired.repairs.ReserveN(r.now, 1)
	backend := found.Backend
	if r.desired.origin == fromPod {
		backend = r.Backend
	}
	unrepairable, err := r.apply(ns, backend, found)
	r.unlockRules()
	failure := metrics.Repairs(metrics.CauseDrift, metrics.ActionRepair, metrics.Failure)
	switch {
	case errors.Is(err, errRemovedAgain):
		r.Metrics.Count(failure, 1)
		r.nextAuditAt = r.now // the next repair is subject only to the rate limit of repairs
		return
	case errors.As(err, new(incompleteRepairError)):
		r.Metrics.Count(failure, 1)
		r.nextAuditAt = r.now.Add(errorBackoff)
		r.recordEvent(reasonRepairFailed, description+"; the redirection is restored"+
			r.endConnections(ns)+"; but the repair is incomplete: "+err.Error())
		r.unrepaired.reset() // the backend has no differences
		return
	case err != nil:
		r.Metrics.Count(failure, 1)
		r.onFailedRepair()
		r.recordEvent(reasonRepairFailed, description+"; the repair failed: "+err.Error())
		return
	}
	if digest := digestOf(unrepairable); digest != "" {
		r.Metrics.Count(failure, 1)
		r.state = Drifted
		r.onFailedRepair()
		r.unrepaired.found = digest
		if r.unrepaired.unrepairable != digest {
			r.unrepaired.unrepairable = digest
			r.recordEvent(reasonDrifted,
				"the agent cannot repair these differences: "+joinDifferences(unrepairable))
		}
		return
	}
	r.Metrics.Count(metrics.Repairs(metrics.CauseDrift, metrics.ActionRepair, metrics.Success), 1)
	r.Metrics.Observe(metrics.RepairDuration(metrics.CauseDrift),
		time.Since(r.unrepaired.since).Seconds())
	r.Log.Info("pod repaired", zap.Stringer("pod", r.item.Ref), zap.String("reason", description),
		zap.Duration("after", time.Since(r.unrepaired.since)), r.modeField())
	r.recordEvent(reasonRepaired,
		description+"; the redirection is restored"+r.endConnections(ns))
	r.unrepaired.reset()
	r.inspectForeign(ctx, ns)
}

// An incompleteRepairError is the error of a repair after which the backend has no differences, for
// example because another backend could not be read. The error does not delay the next repair.
type incompleteRepairError struct{ error }

// errRemovedAgain is the error of a repair after which the pod has no rules: another process has
// removed them between the repair and the check.
var errRemovedAgain = errors.New("the rules were removed again")

// onFailedRepair plans the next audit for the time when another repair is allowed.
func (r *auditRun) onFailedRepair() {
	r.repairBackoff.recordAttempt(r.uid, &r.unrepaired.failed, r.now)
	r.nextAuditAt = r.unrepaired.failed.next
}

// apply applies the desired state, and returns the remaining differences.
func (r *auditRun) apply(
	ns Namespace, backend compat.BackendName, found compat.Comparison,
) ([]rules.Difference, error) {
	rs, err := r.rulesets.ruleset(r.desired.redirection)
	if err != nil {
		return nil, err
	}
	applied, repairErr := ns.Repair(backend, rs, found)
	if repairErr != nil && applied.Outcome == "" {
		return nil, repairErr
	}
	if !found.HasRules {
		r.mu.Lock()
		r.counters.restart()
		r.mu.Unlock()
	}
	found, err = ns.Check(applied.Backend, rs, compat.Snapshot{})
	isApplied := found.Backend == applied.Backend && len(found.Differences) == 0
	if repairErr != nil && !isApplied {
		return nil, repairErr // the rules may still be in the previous backend
	}
	r.desired.backend = applied.Backend
	if repairErr == nil && err != nil {
		return nil, fmt.Errorf("check the result of the repair: %w", err)
	}
	if repairErr == nil && len(found.Differences) > 0 && !found.HasRules {
		return nil, errRemovedAgain
	}
	if len(found.Differences) == 0 {
		// If the repair has created only some rules again, their counters begin at 0. Read them
		// now: later they may exceed the values of the last audit, and the restart would not be
		// detected.
		r.readCounters(found.Packets)
	}
	if repairErr != nil {
		return nil, incompleteRepairError{repairErr}
	}
	return found.Differences, nil
}

// count counts the differences by their kinds. If the pod has no rules, it counts a single drift.
func (r *auditRun) count(differences []rules.Difference, noRules bool) {
	if noRules {
		r.Metrics.Count(metrics.Drifts(metrics.DriftAbsent), 1)
		return
	}
	for _, d := range differences {
		kind := metrics.DriftKind(d.Kind)
		if d.Where == "routing" {
			kind = metrics.DriftRoutes
		}
		r.Metrics.Count(metrics.Drifts(kind), 1)
	}
}

// describe describes the differences, and names the process that last changed rules. For a pod
// without a record, it is unknown whether the rules or the pod have changed.
func (r *auditRun) describe(differences []rules.Difference, noRules bool) string {
	text := "the pod's redirection was changed: " + joinDifferences(differences)
	switch {
	case noRules:
		text = "the pod's redirection was removed: no rule is left"
	case r.desired.origin == fromPod:
		text = "the pod has no record of ADD, and its rules are not those that it needs now: " +
			joinDifferences(differences)
	}
	if r.pending.pid != 0 {
		text += fmt.Sprintf(" (the last change of rules was made by process %q, pid %d of the node)",
			r.pending.process, r.pending.pid)
	}
	return text
}

// digestOf returns a digest of the differences, or an empty string if there are none. The digest is
// stored until they are repaired; a process of the pod determines their number and size.
func digestOf(differences []rules.Difference) string {
	if len(differences) == 0 {
		return ""
	}
	texts := rules.DifferenceTexts(differences)
	slices.Sort(texts)
	digest := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return string(digest[:])
}

// maxShownDifferences is the maximum number of differences in an event. The command rules check
// lists all.
const maxShownDifferences = 3

// joinDifferences describes the first maxShownDifferences of the differences, and says how many it
// omits.
func joinDifferences(differences []rules.Difference) string {
	texts := rules.DifferenceTexts(differences[:min(maxShownDifferences, len(differences))])
	if omitted := len(differences) - maxShownDifferences; omitted > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", omitted))
	}
	return strings.Join(texts, "; ")
}
