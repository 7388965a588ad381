package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/token"
)

// Reasons of events that are not about the node's files.
const (
	kernelReason      = "KernelUnsupported"
	tokenReason       = "TokenNotPublished"
	permissionsReason = "RightsMissing"
	unavailableReason = "APIServerUnavailable"
	bypassReason      = "PluginBypassed"
)

// updateEvents updates the node's events with the current problems. Before the first reconciliation
// it does nothing.
func (a *Agent) updateEvents() {
	s := a.node.Status()
	if s.At.IsZero() {
		return
	}
	// If the plugin can be inserted now, the next reconciliation inserts it. The problem is then
	// omitted, because otherwise each start of an agent would send an event.
	problems := slices.DeleteFunc(slices.Clone(s.Problems), func(p node.Problem) bool {
		return p.Reason == node.NotReadyToInsert && a.checkInsertable() == nil
	})
	for i := range problems {
		problems[i].Message = a.reporter.hostPaths.Replace(problems[i].Message)
	}
	events := problemEvents(problems, a.publisher.Status(), a.missingPermissions(), a.socketReady(),
		time.Now())
	for i := range events {
		if events[i].reason == string(node.ConflictingWrites) {
			for _, w := range s.ConflictingWriters {
				events[i].count += w.Rewrites
			}
		}
	}
	if b, ok := a.bypass.Current(); ok {
		events = append(events, problemEvent{bypassReason, b.String(), b.Pods})
	}
	a.events.set(events, a.Readiness().Ready)
}

// problemEvents returns the events for problems with the node's files and the plugin's kubeconfig,
// for missing permissions, and for an unavailable API server.
func problemEvents(
	problems []node.Problem, t token.Status, missing []string, socketReady bool, now time.Time,
) []problemEvent {
	var events []problemEvent
	// Before the first reply of the API server, waiting for it is normal.
	starting := t.Origin == "" && !t.HasLastingProblem(now)
	for _, p := range problems {
		if p.Reason == node.NotReadyToInsert && (starting || len(missing) > 0) {
			continue // not a problem yet, or caused by the permissions that are reported below
		}
		events = append(events, problemEvent{reason: string(p.Reason), message: p.Message})
	}
	if len(missing) > 0 {
		events = append(events, problemEvent{
			reason: permissionsReason, message: strings.Join(missing, "; "),
		})
	}
	if t.HasLastingProblem(now) {
		events = append(events, problemEvent{
			reason: tokenReason, message: "the plugin's kubeconfig: " + t.Problem.Error(),
		})
	}
	if t.Unavailable != nil && !t.Usable(now) && !socketReady {
		events = append(events, problemEvent{
			reason: unavailableReason,
			message: "the API server does not reply to requests with the plugin's kubeconfig: " +
				t.Unavailable.Error(),
		})
	}
	return events
}
