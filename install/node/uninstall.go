package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Report is the result of an uninstallation.
type Report struct {
	// Changed are the paths of the files that were restored, changed or removed.
	Changed []string
	// Left are the executables that cannot be removed yet.
	Left []Leftover
}

// A Leftover is an executable that remains because sandboxes need it for their removal, or because
// a foreign configuration names it. A later run removes it.
type Leftover struct {
	Path string
	// References is the number of sandboxes whose cached result names the executable.
	References int
	// AgentPods is the number of these sandboxes that belong to the agent's pods, which exist until
	// the agent has ended.
	AgentPods int
	// NamedBy is the path of the first configuration that names the executable, such as a copy that
	// Multus made; empty if no configuration names the executable.
	NamedBy string
	// Noop is set if the executable was replaced with the no-op executable.
	Noop bool
}

func (l Leftover) String() string {
	description := "the plugin"
	if l.Noop {
		description = "a no-op plugin"
	}
	var reasons []string
	if l.References > 0 {
		reasons = append(reasons,
			fmt.Sprintf("the removal of %d sandboxes needs it%s", l.References, l.agentPodsText()))
	}
	if l.NamedBy != "" {
		reasons = append(reasons, fmt.Sprintf("%s names it: pods that use that file do not start "+
			"until it is written again without the plugin", l.NamedBy))
	}
	return fmt.Sprintf("%s stays, as %s, because %s", l.Path, description,
		strings.Join(reasons, ", and because "))
}

func (l Leftover) agentPodsText() string {
	switch {
	case l.AgentPods == l.References:
		return ", all of the agent's own pods, which end after the agent"
	case l.AgentPods > 0:
		return fmt.Sprintf(", %d of which belong to the agent's pods", l.AgentPods)
	}
	return ""
}

const (
	// pollInterval is the interval for reading cached results.
	pollInterval = 500 * time.Millisecond
	// reloadDelay is the time for which a runtime may use its previous configuration: containerd
	// reads the new one after some tenths of a second, and must then create a sandbox and cache its
	// result.
	reloadDelay = 2 * time.Second
)

// Uninstall removes the plugin from the configurations, and then removes the executables when no
// cached result of a runtime names the plugin. It waits for such results to disappear, at most for
// the duration patience. It does not wait for the sandboxes of the agent's pods, which end after
// the agent. Executables that cached results or copies of the configuration still name are replaced
// with the no-op executable, and the journal is kept until nothing is left. Uninstall may be
// repeated, even after a kill. It returns [journal.ErrAgentRunning] while an agent runs, because
// the agent would install the plugin again.
func (n *Node) Uninstall(ctx context.Context, patience time.Duration) (Report, error) {
	n.reconcileLock.Lock()
	defer n.reconcileLock.Unlock()
	s := n.currentSettings()
	// Recorded writes are forgotten, so that later changes of the files are not conflicts.
	n.conflicts, n.tempRemoved = newConflicts(), false
	var report Report
	if err := journal.CheckNoAgent(s.StateDir); err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	// With a damaged journal the element is removed from the current content.
	if err := n.withLock(ctx, s, func(j *journal.Journal, _, _ error) error {
		return n.restoreConfigurations(s, j, &report)
	}); err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	references := waitForReferences(ctx, s, patience, len(report.Changed) > 0)
	err := n.withLock(ctx, s, func(j *journal.Journal, _, _ error) error {
		return n.removeExecutables(s, j, references, &report)
	})
	if err == nil && len(report.Left) == 0 {
		err = discardState(ctx, s.StateDir)
	}
	if err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	return report, nil
}

// restoreConfigurations removes the plugin from the configuration directory; see [Released].
func (n *Node) restoreConfigurations(s Settings, j *journal.Journal, report *Report) error {
	for _, dir := range []string{s.CNIConfDir, s.CNIBinDir, s.StateDir} {
		if _, err := file.Sweep(dir); err != nil {
			return err
		}
	}
	var err error
	for range maxAttempts {
		var found Actual
		found, err = n.readState(s, j)
		if errors.Is(err, fs.ErrNotExist) {
			// The directory was removed together with all changes of the agent.
			found, err = Actual{Entries: confEntries(j)}, nil
		}
		if err != nil {
			return err
		}
		var changed []string
		var unrecorded []error
		changed, unrecorded, err = n.apply(s, j, Compare(Released(s, found)))
		report.Changed = append(report.Changed, changed...)
		if !errors.Is(err, file.ErrChanged) {
			err = errors.Join(append(unrecorded, err)...)
			break
		}
	}
	return err
}

// waitForReferences waits until cached results name the plugin only for the agent's own pods, at
// most for patience, and returns the final references; see [References]. If the results cannot be
// read, each executable counts as named. After a change of the configuration it waits at least
// reloadDelay, in which new results may appear.
func waitForReferences(
	ctx context.Context, s Settings, patience time.Duration, justChanged bool,
) map[string]ReferenceCount {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	settled := time.Now()
	if justChanged {
		settled = settled.Add(reloadDelay)
	}
	for {
		references, err := References(s.ResultDirs, s.OwnPod)
		if err != nil {
			references = map[string]ReferenceCount{}
			for _, plugin := range append(slices.Clone(s.ReplacedTypes), s.Type) {
				references[plugin] = ReferenceCount{Sandboxes: 1}
			}
		}
		count := references[s.Type]
		if count.Sandboxes == count.AgentPods && !time.Now().Before(settled) {
			return references
		}
		select {
		case <-ctx.Done():
			return references
		case <-ticker.C:
		}
	}
}

// removeExecutables removes Sluice's executables except those that are still named.
func (n *Node) removeExecutables(
	s Settings, j *journal.Journal, references map[string]ReferenceCount, report *Report,
) error {
	named, err := mentionedBy(s.CNIConfDir)
	if err != nil {
		return err
	}
	noops := slices.DeleteFunc(slices.Clone(s.ReplacedTypes), func(plugin string) bool {
		return !n.isNoop(s, j, plugin)
	})
	for _, name := range append(slices.Sorted(maps.Keys(s.Binaries)), noops...) {
		path := filepath.Join(s.CNIBinDir, name)
		count := references[name]
		isNamed := count.Sandboxes > 0 || named[name] != ""
		if isNamed && n.executables.exists(name) {
			isNoop := slices.Contains(noops, name)
			if !isNoop && s.Noop != "" {
				status := Status{}
				if err := n.writeNoop(s, j, name, &status); err != nil {
					return err
				}
				report.Changed = append(report.Changed, status.Changes...)
				isNoop = true
			}
			report.Left = append(report.Left, Leftover{
				path, count.Sandboxes, count.AgentPods, named[name], isNoop,
			})
			continue
		}
		if n.executables.exists(name) {
			report.Changed = append(report.Changed, path)
		}
		if err := n.discardExecutable(j, name); err != nil {
			return err
		}
	}
	return nil
}

// discardState removes the journal, the lock and their directory.
func discardState(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock, err := journal.Acquire(ctx, dir)
	if err != nil {
		return err
	}
	j, err := journal.Open(dir)
	if err == nil {
		err = j.Discard()
	}
	if err != nil {
		return errors.Join(err, lock.Release())
	}
	return lock.Discard()
}
