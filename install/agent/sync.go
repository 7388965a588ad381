package agent

import (
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-mesh/sluice/install/agent/credential"
	"github.com/sluice-mesh/sluice/install/agent/observe"
	"github.com/sluice-mesh/sluice/install/metrics"
	"github.com/sluice-mesh/sluice/install/node"
	"github.com/sluice-mesh/sluice/install/token"
)

// lastReported contains the state that was reported last, so that only changes are reported.
type lastReported struct {
	problems     []node.Problem
	rewrites     map[string]uint64 // by conflicting writer
	failedWrites map[string]uint64 // by part of the installation
	directories  node.Directories
	bypassed     bool              // see reporter.bypassed
	token        token.Status      // of the plugin
	credentials  credential.Status // of the agent
}

// Reasons of events that are not about the node's files.
const (
	kernelReason      = "KernelUnsupported"
	tokenReason       = "TokenNotPublished"
	rightsReason      = "RightsMissing"
	unavailableReason = "APIServerUnavailable"
	bypassReason      = "PluginBypassed"
)

// reportKernel reports the result of testing the kernel.
func (a *Agent) reportKernel(p observe.Part) {
	if p.Ready {
		a.options.Log.Info("the kernel supports the rules: " + p.Reasons[0])
		return
	}
	a.options.Log.Error("nothing is installed, because the kernel does not support the rules",
		zap.Strings("reasons", p.Reasons))
	a.events.set([]problemEvent{{
		reason: kernelReason, message: "nothing is installed on this node: " + p.Reasons[0],
	}})
}

// reportFiles reports the state of the node's files.
func (a *Agent) reportFiles(s node.Status) {
	a.reporter.reportFiles(s)
	a.noteChain(s)
	a.updateEvents()
	a.remount(s)
}

// updateEvents updates the node's events with the current problems.
func (a *Agent) updateEvents() {
	s := a.node.Status()
	if s.At.IsZero() {
		return
	}
	// If the plugin can be inserted now, the next reconciliation inserts it. The problem is not
	// reported until then, because otherwise each start of an agent would send an event.
	problems := slices.DeleteFunc(slices.Clone(s.Problems), func(p node.Problem) bool {
		return p.Reason == node.NotReadyToInsert && a.checkInsertable() == nil
	})
	for i := range problems {
		problems[i].Message = a.reporter.hostPaths.Replace(problems[i].Message)
	}
	events := problemEvents(problems, a.publisher.Status(), a.missingRights(), a.socketReady(),
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
	a.events.set(events)
}

// problemEvents returns the events for problems with the node's files, the plugin's kubeconfig and
// missing permissions.
func problemEvents(
	problems []node.Problem, t token.Status, missing []string, socketReady bool, now time.Time,
) []problemEvent {
	var events []problemEvent
	// Before the first reply of the API server, waiting for it is normal.
	starting := t.Origin == "" && t.Problem == nil
	for _, p := range problems {
		// the missing permission is reported below
		if p.Reason != node.NotReadyToInsert || !starting && len(missing) == 0 {
			events = append(events, problemEvent{reason: string(p.Reason), message: p.Message})
		}
	}
	if len(missing) > 0 {
		events = append(events, problemEvent{
			reason: rightsReason, message: strings.Join(missing, "; "),
		})
	}
	if t.Problem != nil {
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

// reportFiles reports the changes of a status: new and solved problems, and conflicting writers.
func (r *reporter) reportFiles(s node.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range s.Changes {
		r.log.Info("file written", zap.String("file", r.hostPaths.Replace(path)))
		r.metrics.Count(metrics.InstallWrites(r.partOf(path), metrics.Success), 1)
	}
	if len(s.Changes) > 0 && s.Installed() {
		r.metrics.Count(metrics.IstioInstalls(metrics.InstallationSuccess), 1)
	}
	for _, p := range s.Problems {
		if !slices.Contains(r.lastReported.problems, p) {
			r.reportProblem(p)
		}
	}
	for _, p := range r.lastReported.problems {
		if !slices.Contains(s.Problems, p) {
			r.log.Info("resolved: " + r.hostPaths.Replace(p.String()))
		}
	}
	for writer, n := range s.Totals.Rewrites {
		if added := n - r.lastReported.rewrites[writer]; added > 0 {
			r.metrics.Count(metrics.ConflictingWrites(writer), float64(added))
		}
	}
	r.lastReported.problems, r.lastReported.rewrites = s.Problems, s.Totals.Rewrites
	r.countFailedWrites(s.Totals.FailedWrites)
	replaced := s.Directories.Configuration == node.Replaced ||
		s.Directories.Configuration == node.Missing
	r.lastReported.bypassed = replaced ||
		!s.Installed() && s.Primary != "" && !slices.Contains(s.Plugins, pluginType)
	r.reportDirectories(s.Directories)
}

// reportDirectories sets the metrics of the directories' states, and logs when it can no longer be
// determined whether the runtime uses the directories.
func (r *reporter) reportDirectories(d node.Directories) {
	for part, current := range map[string]node.DirectoryState{
		observe.Configuration: d.Configuration, observe.Binary: d.Binary,
	} {
		for _, state := range []node.DirectoryState{
			node.Same, node.Replaced, node.Missing, node.Unknown,
		} {
			r.metrics.SetBool(metrics.NodeDirectory(part, string(state)), current == state)
		}
	}
	if last := r.lastReported.directories; !d.Known() && (last.Known() || last.Why != d.Why) {
		r.log.Warn(
			"cannot determine whether the runtime reads the directories that the agent manages",
			zap.String("reason", d.Why))
	}
	r.lastReported.directories = d
}

// reportProblem reports a new problem.
func (r *reporter) reportProblem(p node.Problem) {
	text := r.hostPaths.Replace(p.String())
	if p.Reason == node.WatchFailed {
		r.metrics.Count(metrics.EventsLost(metrics.SourceFiles), 1)
	}
	if !p.Blocking || p.Reason == node.NotReadyToInsert { // the cause is reported as an error
		r.log.Warn(text)
		return
	}
	r.log.Error(text)
}

// countFailedWrites counts the failed writes since the last reconciliation, in Sluice's metric and
// in the metric of istio-cni.
func (r *reporter) countFailedWrites(total map[string]uint64) {
	for part, n := range total {
		added := float64(n - r.lastReported.failedWrites[part])
		if added == 0 {
			continue
		}
		istio := metrics.InstallationConfig
		if part == observe.Binary {
			istio = metrics.InstallationBinaries
		}
		r.metrics.Count(metrics.InstallWrites(part, metrics.Failure), added)
		r.metrics.Count(metrics.IstioInstalls(istio), added)
	}
	r.lastReported.failedWrites = total
}

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
		r.log.Info("the plugin's kubeconfig was written", zap.String("token", string(s.Origin)),
			zap.Time("expires", s.Expiry))
		r.metrics.Count(metrics.InstallWrites(observe.Kubeconfig, metrics.Success), 1)
	}
	if s.Failed > last.Failed {
		r.metrics.Count(metrics.InstallWrites(observe.Kubeconfig, metrics.Failure), 1)
		r.metrics.Count(metrics.IstioInstalls(metrics.InstallationKubeconfig), 1)
	}
	r.logChange("the plugin's kubeconfig", s.Problem, last.Problem)
	r.logChange("the plugin lacks a permission", s.Forbidden, last.Forbidden)
	// During an outage only its start is logged: each error has another text, with the duration.
	if s.Unavailable == nil || last.Unavailable == nil {
		r.logChange("the API server does not reply to requests with the plugin's kubeconfig",
			s.Unavailable, last.Unavailable)
	}
}

// logChange logs the start, changes and the end of a problem.
func (r *reporter) logChange(description string, now, last error) {
	switch {
	case now != nil && (last == nil || now.Error() != last.Error()):
		r.log.Warn(description, zap.Error(now))
	case now == nil && last != nil:
		r.log.Info("resolved: " + description)
	}
}
