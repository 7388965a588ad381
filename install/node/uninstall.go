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
	// Left are the executables that could not be removed yet.
	Left []Leftover
}

// A Leftover is an executable that remains because sandboxes need it for their removal, or because
// a foreign configuration names it. A later run removes it.
type Leftover struct {
	Path       string
	References int // sandboxes whose cached result names it
	// those among them of the agent's own pods, which cannot go before the agent has ended
	Own int
	// the path of the first configuration that names it, as a copy that Multus has made; empty if
	// none does
	NamedBy string
	Noop    bool // it does nothing now; otherwise it is the plugin itself
}

func (l Leftover) String() string {
	what := "the plugin itself"
	if l.Noop {
		what = "a program that does nothing"
	}
	var why []string
	if l.References > 0 {
		why = append(why,
			fmt.Sprintf("the removal of %d sandboxes needs it%s", l.References, l.whose()))
	}
	if l.NamedBy != "" {
		why = append(why,
			fmt.Sprintf("%s names it: pods that use that file do not start until it is written again without the plugin", l.NamedBy))
	}
	return fmt.Sprintf("%s stays, as %s, because %s", l.Path, what,
		strings.Join(why, ", and because "))
}

func (l Leftover) whose() string {
	switch {
	case l.Own == l.References:
		return ", all of the agent's own pods: none that could go is left"
	case l.Own > 0:
		return fmt.Sprintf(", %d of them of the agent's own pods", l.Own)
	}
	return ""
}

const (
	// poll is the interval for reading cached results.
	poll = 500 * time.Millisecond
	// reloadDelay is the time for which a runtime may use its previous configuration: some tenths
	// of a second until it reads the new one (containerd), and the time to create a sandbox and
	// cache its result.
	reloadDelay = 2 * time.Second
)

// Uninstall takes the plugin off the node: first out of the configuration, and then, once no cached
// result of a runtime names it any more or patience is over, its executable. Sandboxes of the
// agent's own pods are not waited for, since they end after the agent. Those executables that are
// still named then, by results or by a configuration that others have copied from ours, are left,
// replaced by one that does nothing, and so is the journal, which goes when nothing is left. It may
// be repeated, also after a kill, and refuses with [journal.ErrAgentRunning] while an agent runs,
// which would install again.
func (n *Node) Uninstall(ctx context.Context, patience time.Duration) (Report, error) {
	n.pass.Lock()
	defer n.pass.Unlock()
	s := n.current()
	// Writes of other programs do not matter any more.
	n.conflicts, n.swept = newConflicts(), false
	var report Report
	if err := journal.CheckNoAgent(s.StateDir); err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	// With a damaged journal the element is removed from the current content.
	if err := n.exclusively(ctx, s, func(j *journal.Journal, _, _ error) error {
		return n.restore(s, j, &report)
	}); err != nil {
		return report, fmt.Errorf("uninstall: %w", err)
	}
	references := awaitRelease(ctx, s, patience, len(report.Changed) > 0)
	err := n.exclusively(ctx, s, func(j *journal.Journal, _, _ error) error {
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

// restore removes the plugin from the configuration directory.
func (n *Node) restore(s Settings, j *journal.Journal, report *Report) error {
	for _, dir := range []string{s.CNIConfDir, s.CNIBinDir, s.StateDir} {
		if _, err := file.Sweep(dir); err != nil {
			return err
		}
	}
	var err error
	for range tries {
		var found Found
		found, err = n.look(s, j)
		if errors.Is(err, fs.ErrNotExist) {
			// the directory is gone, and with it all that we did there
			found, err = Found{Entries: confEntries(j)}, nil
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

// awaitRelease waits until cached results name the plugin only for the agent's own pods, and
// returns what they name at the end. If they cannot be read, each executable counts as named. Right
// after a change, new results may still appear.
func awaitRelease(
	ctx context.Context, s Settings, patience time.Duration, justChanged bool,
) map[string]Use {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	settled := time.Now()
	if justChanged {
		settled = settled.Add(reloadDelay)
	}
	for {
		references, err := References(s.ResultDirs, s.OwnPod)
		if err != nil {
			references = map[string]Use{}
			for _, plugin := range append(slices.Clone(s.TakeOver), s.Type) {
				references[plugin] = Use{Sandboxes: 1}
			}
		}
		if use := references[s.Type]; use.Sandboxes == use.Own && !time.Now().Before(settled) {
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
	s Settings, j *journal.Journal, references map[string]Use, report *Report,
) error {
	named, err := mentions(s.CNIConfDir)
	if err != nil {
		return err
	}
	noops := slices.DeleteFunc(slices.Clone(s.TakeOver), func(plugin string) bool {
		return !n.isNoop(s, j, plugin)
	})
	for _, name := range append(slices.Sorted(maps.Keys(s.Binaries)), noops...) {
		path := filepath.Join(s.CNIBinDir, name)
		if use := references[name]; (use.Sandboxes > 0 ||
			named[name] != "") && n.executables.exists(name) {
			noop := slices.Contains(noops, name)
			if !noop && s.Noop != "" {
				status := Status{}
				if err := n.fill(s, j, name, &status); err != nil {
					return err
				}
				report.Changed = append(report.Changed, status.Changes...)
				noop = true
			}
			report.Left = append(report.Left, Leftover{
				path, use.Sandboxes, use.Own, named[name], noop,
			})
			continue
		}
		if n.executables.exists(name) {
			report.Changed = append(report.Changed, path)
		}
		if err := n.discard(j, name); err != nil {
			return err
		}
	}
	return nil
}

// discardState removes the journal, the lock and their directory.
func discardState(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
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
