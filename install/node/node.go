package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/install/notify"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Node keeps a Kubernetes node in its desired state. Its methods are safe for concurrent use.
type Node struct {
	now  func() time.Time // time.Now, except in tests
	wake notify.Channel

	mu       sync.Mutex // guards settings and status
	settings Settings
	status   Status

	reconcileLock sync.Mutex // held during a reconciliation; guards the fields below
	executables   *executables
	conflicts     *conflicts
	invalidFiles  invalidFiles
	directories   directories
	wasInstalled  bool // Status.Installed of the last reconciliation
	totals        Totals
	tempRemoved   bool // temporary files of killed processes were removed
	entriesNoted  bool // the files with a journal entry were passed to conflicts.noteWritten
	linksSignaled bool // see signalLinks
	references    map[string]ReferenceCount
	countedAt     time.Time    // time when references were counted
	publish       func(Status) // argument of Run while it runs
	watchErr      error        // why Run cannot watch the directories
}

// New returns a node. Nothing is read or changed before the first reconciliation.
func New(s Settings) (*Node, error) {
	s = s.WithDefaults()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Node{
		now: time.Now, wake: notify.New(), settings: s,
		executables:  &executables{s.CNIBinDir, map[pair]comparison{}, map[string]checksum{}},
		conflicts:    newConflicts(),
		invalidFiles: invalidFiles{}, totals: Totals{FailedWrites: map[string]uint64{}},
	}, nil
}

// Wake triggers a reconciliation of [Node.Run].
func (n *Node) Wake() { n.wake.Notify() }

// Status returns the result of the last reconciliation.
func (n *Node) Status() Status {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status
}

func (n *Node) currentSettings() Settings {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settings
}

// lockTimeout is the maximum time that a reconciliation waits for the lock. Other processes hold
// the lock for some milliseconds.
const lockTimeout = 5 * time.Second

// Reconcile reads the actual state and applies the desired state. The status contains the problems.
func (n *Node) Reconcile(ctx context.Context) Status {
	n.reconcileLock.Lock()
	defer n.reconcileLock.Unlock()
	s := n.currentSettings()
	status := Status{At: n.now(), Unread: true}
	if err := n.withLock(ctx, s, func(j *journal.Journal, damage, readOnly error) error {
		if damage != nil {
			status.add(newProblem(JournalDamaged, false, "%v", damage))
		}
		if readOnly != nil {
			n.addHarmless(&status, fmt.Errorf("no journal entry can be added, "+
				"so the plugin is not inserted into further files: %w", readOnly))
		}
		status.Unread = false
		n.converge(s, j, &status)
		return nil
	}); err != nil {
		status.add(problemOf(err))
	}
	status.Done = n.now()
	if n.watchErr != nil {
		status.add(newProblem(WatchFailed, false, "cannot watch the directories, "+
			"so changes are detected by polling every second: %v", n.watchErr))
	}
	n.directories.check(s, &status)
	n.totals.Reconciliations++
	n.wasInstalled = status.Installed()
	n.totals.Rewrites = n.conflicts.total
	status.Totals = n.totals.clone()

	n.mu.Lock()
	n.status = status
	n.mu.Unlock()
	if n.publish != nil && ctx.Err() == nil {
		n.publish(status)
	}
	return status
}

// withLock calls do with the journal while it holds the lock in the state directory, so that no
// other agent or uninstallation changes the node's files. damage is the error if the journal is
// damaged, and readOnly the error if the journal cannot be written. If the journal cannot be read,
// do is not called.
func (n *Node) withLock(
	ctx context.Context, s Settings, do func(j *journal.Journal, damage, readOnly error) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock, err := journal.Acquire(ctx, s.StateDir)
	if err != nil {
		return err
	}
	j, err := journal.Open(s.StateDir)
	if j != nil {
		err = do(j, err, lock.ReadOnly())
	}
	return errors.Join(err, lock.Release())
}

// converge installs the executables, and then the configuration that names them; see also
// rollBackConfiguration. It reports conflicting writers.
func (n *Node) converge(s Settings, j *journal.Journal, status *Status) {
	if !n.tempRemoved {
		n.removeTemporary(s, status)
	}
	if !n.entriesNoted {
		n.entriesNoted = true
		for name := range confEntries(j) {
			// The files had the desired content when the last process ended. If a file has other
			// content now, another program has changed the file.
			n.conflicts.noteWritten(name, "")
		}
	}
	if n.isRollback(s, j) && !n.rollBackConfiguration(s, j, status) {
		status.Executable = Outdated // the later version, which stays
		n.addConflicts(status)
		return
	}
	// A configuration that names a missing executable would prevent all pods from starting.
	if outdated, ok := n.install(s, j, status); ok {
		n.updateNoops(s, j, status)
		if err := checkMayExecute(s); err != nil {
			status.add(problemOf(err))
			s.ReadyToInsert = func() error { return err }
		}
		n.configure(s, j, status, outdated)
	}
	n.addConflicts(status)
}

// isRollback reports whether a later version of the plugin than the agent's is installed: the
// journal contains both, and the agent's was installed first.
func (n *Node) isRollback(s Settings, j *journal.Journal) bool {
	source := s.Binaries[s.Type]
	if n.executables.isKnownCopy(s.Type, source) {
		return false
	}
	desired, desiredErr := n.executables.sum(source)
	installed, err := n.executables.sum(filepath.Join(s.CNIBinDir, s.Type))
	if desiredErr != nil || err != nil {
		return false // install reports the error
	}
	all := versions(j, s.Type)
	i := slices.Index(all, desired)
	return i >= 0 && i < slices.Index(all, installed)
}

// rollBackConfiguration writes the configuration of the agent's version of the plugin while a later
// version is installed, and reports whether it succeeded. The later version accepts the element of
// an earlier one, also during an upgrade. An earlier version may refuse the element of a later one:
// ADD would fail from the installation of its executable until the change of the configuration, or
// for as long as the configuration cannot be written.
func (n *Node) rollBackConfiguration(s Settings, j *journal.Journal, status *Status) (ok bool) {
	before := *status
	if !n.configure(s, j, status, false) {
		return false
	}
	changes := status.Changes
	*status = before // converge configures again, and adds the same problems
	status.Changes = changes
	return true
}

// removeTemporary removes temporary files of killed processes, and sets tempRemoved unless this
// fails.
func (n *Node) removeTemporary(s Settings, status *Status) {
	n.tempRemoved = true
	for _, dir := range []string{s.CNIConfDir, s.CNIBinDir, s.StateDir} {
		if _, err := file.RemoveTemporary(dir); err != nil {
			n.tempRemoved = false
			n.addHarmless(status, fmt.Errorf("remove temporary files from %s: %w", dir, err))
		}
	}
}

// maxAttempts is the maximum number of attempts to apply the desired state while other programs
// write the same files.
const maxAttempts = 5

// configure applies the desired state of the configuration directory. outdated is the first result
// of install. After an error it returns false, and the files may not have the desired content.
func (n *Node) configure(
	s Settings, j *journal.Journal, status *Status, outdated bool,
) (ok bool) {
	var err error
	for range maxAttempts {
		var found Actual
		if found, err = n.readState(s, j); err != nil {
			status.Unread = !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errGone)
			break
		}
		status.incomplete = n.invalidFiles.markIncomplete(status.At, found.Files, n.wasInstalled)
		relaxed := n.conflicts.relaxedAt(status.At)
		if relaxed.KeepElement = outdated; outdated {
			found.InstalledElement = n.installedElement(s, j)
		}
		state := Desired(s, found, relaxed)
		n.noteConflicts(s, found, state, status.At)
		var changed []string
		var recordErrors []error
		changed, recordErrors, err = n.apply(s, j, PendingTargets(state))
		for _, e := range recordErrors {
			n.addHarmless(status, e)
		}
		status.Changes = append(status.Changes, changed...)
		status.Primary, status.Plugins = state.Primary, state.Plugins
		if errors.Is(err, file.ErrChanged) {
			continue
		}
		status.add(state.Problems...)
		break
	}
	err = errors.Join(err, n.signalLinks(s))
	// The plugins that Sluice's plugin replaces may be in a separate directory.
	others := slices.DeleteFunc(slices.Clone(status.Plugins), func(plugin string) bool {
		return plugin == s.Type || slices.Contains(s.ReplacedTypes, plugin)
	})
	status.PluginsElsewhere = n.executables.elsewhere(others)
	n.countFailed(s, err, status)
	if err != nil {
		status.add(problemOf(err))
	}
	return err == nil
}

// readState reads the actual state.
func (n *Node) readState(s Settings, j *journal.Journal) (Actual, error) {
	files, pluginDirs, err := readConfigurations(s.CNIConfDir)
	if err != nil {
		return Actual{}, err
	}
	found := Actual{
		Files: files, PluginDirs: pluginDirs, Entries: confEntries(j),
		Executables: map[string]bool{},
	}
	for _, plugin := range s.ReplacedTypes {
		found.Executables[plugin] = n.executables.exists(plugin) && !n.isNoop(s, j, plugin)
	}
	return found, nil
}
