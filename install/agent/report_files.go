package agent

import (
	"slices"

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
	elsewhere    []string          // see node.Status.PluginsElsewhere
	bypassed     bool              // see reporter.isBypassed
	token        token.Status      // of the plugin
	credentials  credential.Status // of the agent
}

// reportKernel reports the result of testing the kernel.
func (a *Agent) reportKernel(p observe.Part) {
	if p.Ready {
		a.options.Log.Info("result of testing the kernel: " + p.Reasons[0])
		return
	}
	a.options.Log.Error("the agent installs nothing, because the kernel does not support the rules",
		zap.Strings("reasons", p.Reasons))
	a.events.set([]problemEvent{{
		reason:  kernelReason,
		message: "the agent installs nothing on this node because of its kernel: " + p.Reasons[0],
	}}, false)
}

// reportFiles reports the state of the node's files, and makes the agent exit if it needs new
// mounts.
func (a *Agent) reportFiles(s node.Status) {
	a.reporter.reportFiles(s)
	a.bypass.NoteChain(chainCheck(s, a.reporter.hostPaths))
	a.updateEvents()
	a.exitToRemount(s)
}

// reportFiles logs and counts what has changed since the last status: written files, new and
// resolved problems, conflicting and failed writes, and the states of the directories.
func (r *reporter) reportFiles(s node.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range s.Changes {
		r.log.Info("the agent wrote a file", zap.String("file", r.hostPaths.Replace(path)))
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
	if len(s.PluginsElsewhere) > 0 && !slices.Equal(s.PluginsElsewhere, r.lastReported.elsewhere) {
		r.log.Warn("the directory of plugins contains none of the other plugins in the configuration; "+
			"if the runtime searches another directory, no pod starts: check cniBinDir",
			zap.String("directory", r.hostPaths.Replace(r.binDir)),
			zap.String("configuration", s.Primary), zap.Strings("plugins", s.PluginsElsewhere))
	}
	r.lastReported.elsewhere = s.PluginsElsewhere
}

// reportDirectories sets the metrics of the directories' states. It logs a new reason why it cannot
// be determined whether the runtime uses the directories.
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
	// The cause of NotReadyToInsert is logged by its own check.
	if !p.Blocking || p.Reason == node.NotReadyToInsert {
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
