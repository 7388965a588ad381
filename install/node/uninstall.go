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
	// Left are the executables that remain.
	Left []Leftover
}

// A Leftover is an executable that remains because the removal of sandboxes needs it, or because a
// foreign configuration names it. It also remains if either is unknown. A later Uninstall removes
// it when nothing names it.
type Leftover struct {
	Path string
	// References is the number of sandboxes whose cached result names the executable; 0 if
	// ReferencesErr is set.
	References int
	// AgentPods is the number of these sandboxes that belong to pods of the agent's DaemonSet or of
	// the uninstall job. These sandboxes remain until this process has ended.
	AgentPods int
	// ReferencesErr is the error if the cached results cannot be read, so that it is unknown
	// whether sandboxes need the executable.
	ReferencesErr error
	// NamedBy is the path of the first configuration that names the executable, such as a copy that
	// Multus made; empty if no configuration names the executable.
	NamedBy string
	// UnreadErr is the error if a configuration cannot be read, so that it is unknown whether it
	// names the executable.
	UnreadErr error
	// Noop is set if the executable was replaced with the no-op executable, whose ADD fails and
	// whose other commands succeed.
	Noop bool
}

// IsNamed reports whether a configuration names the executable or may name it. The plugin is then
// not completely removed from the node.
func (l Leftover) IsNamed() bool { return l.NamedBy != "" || l.UnreadErr != nil }

func (l Leftover) String() string {
	var reasons []string
	switch {
	case l.ReferencesErr != nil:
		reasons = append(reasons,
			fmt.Sprintf("it is unknown whether sandboxes need it for their removal (%v)", l.ReferencesErr))
	case l.References > 0:
		reasons = append(reasons, l.referencesText())
	}
	if l.NamedBy != "" {
		reasons = append(reasons, fmt.Sprintf("%s names it", l.NamedBy))
	}
	if l.UnreadErr != nil {
		reasons = append(reasons,
			fmt.Sprintf("it is unknown whether a configuration names it (%v)", l.UnreadErr))
	}
	text := l.Path
	if l.Noop {
		text += " was replaced with a no-op plugin that rejects ADD, and"
	}
	text += " is kept because " + strings.Join(reasons, ", and because ")
	if l.Noop && l.NamedBy != "" {
		text += "; pods that use this configuration do not start until the plugin is removed from it"
	}
	return text
}

// referencesText describes the sandboxes whose removal needs the executable.
func (l Leftover) referencesText() string {
	sandboxes := fmt.Sprintf("%d sandboxes", l.References)
	if l.References == 1 {
		sandboxes = "1 sandbox"
	}
	switch {
	case l.AgentPods == l.References:
		return fmt.Sprintf("the removal of %s of the agent's own pods, which end after the agent, needs it",
			sandboxes)
	case l.AgentPods > 0:
		return fmt.Sprintf("the removal of %s needs it, including %d of the agent's own pods", sandboxes,
			l.AgentPods)
	}
	return fmt.Sprintf("the removal of %s needs it", sandboxes)
}

const (
	// pollInterval is the interval for reading cached results.
	pollInterval = 500 * time.Millisecond
	// reloadDelay is the time after a change of the configuration in which runtimes may still cache
	// results of the previous configuration. containerd reads a new configuration after some tenths
	// of a second. The result of a sandbox whose creation began before the change is cached even
	// later.
	reloadDelay = 2 * time.Second
)

// Uninstall removes the plugin from the configurations, and then removes the executables that no
// cached result of a runtime and no configuration names. It waits until no cached result names the
// plugin, but at most for the timeout, and not for the sandboxes of the agent's pods, which end
// after the agent. After a change of a configuration, it waits for at least reloadDelay, because
// new results may appear in this time. Meanwhile it removes the plugin again from configurations
// into which another program writes it. Executables that are still named, or that a cached result
// or a configuration may name because it cannot be read, are replaced with the no-op executable if
// [Settings.Noop] is set, and the journal is kept until nothing is left. Uninstall may be repeated,
// even if an earlier call was killed. The error wraps [journal.ErrAgentRunning] while an agent
// runs, because the agent would install the plugin again.
func (n *Node) Uninstall(ctx context.Context, timeout time.Duration) (Report, error) {
	n.reconcileLock.Lock()
	defer n.reconcileLock.Unlock()
	s := n.currentSettings()
	// Forget the writes of the agent, so that later changes of the files are not conflicts.
	n.conflicts, n.entriesNoted = newConflicts(), false
	var report Report
	// withLockAlone checks this again. Here it avoids waiting for the lock, and creating StateDir.
	if err := journal.CheckNoAgent(s.StateDir); err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	n.linksSignaled = false
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	start := time.Now()
	settledAt := start
	var err error
	for done := false; err == nil && !done; {
		// A damaged journal is no error: then the plugin is removed from the current content of the
		// files, because their original content is unknown.
		err = n.withLockAlone(ctx, s, func(j *journal.Journal) error {
			// Another program that read a file before may have written the plugin into it again.
			changed, err := n.restoreConfigurations(s, j)
			report.Changed = append(report.Changed, changed...)
			if err != nil {
				return err
			}
			if len(changed) > 0 {
				settledAt = time.Now().Add(reloadDelay)
			}
			references, referencesErr := References(s.ResultDirs, s.IsAgentPod)
			count := references[s.Type]
			unreferenced := referencesErr == nil && count.Sandboxes == count.AgentPods
			done = unreferenced && !time.Now().Before(settledAt) ||
				time.Since(start) >= timeout || ctx.Err() != nil
			if !done {
				return nil
			}
			return n.removeExecutables(s, j, references, referencesErr, &report)
		})
		if err == nil && !done {
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}
	if err == nil && len(report.Left) == 0 {
		err = discardState(ctx, s.StateDir)
	}
	if err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	return report, nil
}

// withLockAlone is like withLock, but returns [journal.ErrAgentRunning] if an agent is registered
// when the lock is acquired. An agent that registers later waits for the lock before it changes
// files.
func (n *Node) withLockAlone(
	ctx context.Context, s Settings, do func(j *journal.Journal) error,
) error {
	return n.withLock(ctx, s, func(j *journal.Journal, _, _ error) error {
		if err := journal.CheckNoAgent(s.StateDir); err != nil {
			return err
		}
		return do(j)
	})
}

// restoreConfigurations removes the plugin from the configuration directory; see [Released]. It
// returns the paths of the changed files.
func (n *Node) restoreConfigurations(s Settings, j *journal.Journal) (changed []string, err error) {
	for _, dir := range []string{s.CNIConfDir, s.CNIBinDir, s.StateDir} {
		if _, err := file.RemoveTemporary(dir); err != nil {
			return nil, err
		}
	}
	for range maxAttempts {
		var found Actual
		found, err = n.readState(s, j)
		if errors.Is(err, fs.ErrNotExist) {
			// The directory was removed together with all changes of the agent.
			found, err = Actual{Entries: confEntries(j)}, nil
		}
		if err != nil {
			return changed, err
		}
		var applied []string
		var recordErrors []error
		applied, recordErrors, err = n.apply(s, j, PendingTargets(Released(s, found)))
		changed = append(changed, applied...)
		if !errors.Is(err, file.ErrChanged) {
			err = errors.Join(append(recordErrors, err)...)
			break
		}
	}
	return changed, errors.Join(err, n.signalLinks(s))
}

// removeExecutables removes Sluice's executables. Executables that are still named, or may be named
// because referencesErr is not nil or a configuration cannot be read, are replaced with the no-op
// executable if there is one.
func (n *Node) removeExecutables(
	s Settings, j *journal.Journal, references map[string]ReferenceCount, referencesErr error,
	report *Report,
) error {
	noops := slices.DeleteFunc(slices.Clone(s.ReplacedTypes), func(plugin string) bool {
		return !n.isNoop(s, j, plugin)
	})
	names := append(slices.Sorted(maps.Keys(s.Binaries)), noops...)
	namedBy, unreadErr, err := mentionedBy(s.CNIConfDir, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(s.CNIBinDir, name)
		var count ReferenceCount
		if referencesErr == nil {
			count = references[name]
		}
		isNeeded := referencesErr != nil || count.Sandboxes > 0 || namedBy[name] != "" ||
			unreadErr != nil
		if isNeeded && n.executables.exists(name) {
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
				Path: path, References: count.Sandboxes, AgentPods: count.AgentPods,
				ReferencesErr: referencesErr, NamedBy: namedBy[name], UnreadErr: unreadErr,
				Noop: isNoop,
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
