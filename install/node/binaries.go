package node

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// install installs the executables. It reports whether a configuration may name the plugin, and
// whether it must be the configuration for the installed version.
func (n *Node) install(s Settings, j *journal.Journal, status *Status) (outdated, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(s.Binaries)) {
		path := filepath.Join(s.CNIBinDir, name)
		changed, disturbed, err := n.putVersion(j, name, s.Binaries[name], status)
		if changed {
			status.Changes = append(status.Changes, path)
		}
		if disturbed {
			n.conflicts.count(status.At, path, "", stranger)
		}
		n.countFailed(s, err)
		if name == s.Type {
			status.Executable = n.executables.judge(name, s.Binaries[name], versions(j, name))
			outdated = status.Executable != Verified
		}
		switch {
		case err == nil:
		case name == s.Type && status.Executable == Wrong:
			status.add(n.wrong(path, s.Binaries[name], err))
		default:
			p := problemOf(err)
			// An earlier version works too.
			p.Blocking = name != s.Type || status.Executable != Outdated
			status.add(p)
		}
	}
	return outdated, status.Executable == Verified || status.Executable == Outdated
}

// wrong returns the problem of another program with the plugin's name.
func (n *Node) wrong(path, source string, why error) Problem {
	found, err := n.executables.sum(path)
	if err != nil {
		found = "unknown (" + err.Error() + ")"
	}
	want, err := n.executables.sum(source)
	if err != nil {
		want = "unknown (" + err.Error() + ")"
	}
	return problem(WrongExecutable, true,
		"%s is not the plugin: its sha256 is %s, and that of the agent's image %s; it cannot be replaced: %v; "+
			"pods that start now have no redirection: make the file and its directory writable (chattr -i), "+
			"or unmount what is mounted there (umount)", path, found, want, why)
}

// countFailed counts a failed write.
func (n *Node) countFailed(s Settings, err error) {
	var failed *file.Error
	if !errors.As(err, &failed) || errors.Is(err, file.ErrChanged) {
		return
	}
	part := "configuration"
	if filepath.Dir(failed.Path) == filepath.Clean(s.CNIBinDir) {
		part = "binary"
	}
	n.totals.FailedWrites[part]++
}

// keptVersions is the maximum number of recorded versions of the plugin.
const keptVersions = 16

// versions returns the checksums of the installed versions of an executable.
func versions(j *journal.Journal, name string) []string {
	e, _ := j.Entry(binKey(name))
	return e.Versions
}

// putVersion records and copies a version of an executable. If it cannot be recorded, it is copied
// only if the journal contains an entry for the name.
func (n *Node) putVersion(
	j *journal.Journal, name, source string, status *Status,
) (changed, disturbed bool, err error) {
	sum, err := n.executables.sum(source)
	if err != nil {
		return false, false, err
	}
	e, recorded := j.Entry(binKey(name))
	if !slices.Contains(e.Versions, sum) {
		e.Kind = journal.Created
		e.Versions = append(e.Versions[max(0,
			len(e.Versions)-keptVersions+1):len(e.Versions):len(e.Versions)], sum)
		if err := j.Record(binKey(name), e); err != nil {
			if !recorded {
				return false, false, err
			}
			n.note(status, fmt.Errorf("the version of %s is not recorded: %w", name, err))
		}
	}
	return n.executables.put(name, source)
}

// putNoop records and copies the executable without effect. The stored checksum identifies it
// without its source.
func (n *Node) putNoop(j *journal.Journal, name, source string) (changed bool, err error) {
	sum, err := n.executables.sum(source)
	if err != nil {
		return false, err
	}
	if e, recorded := j.Entry(binKey(name)); !recorded || !slices.Contains(e.Written, sum) {
		e.Kind, e.Written = journal.Created, append(e.Written, sum)
		if err := j.Record(binKey(name), e); err != nil {
			return false, err
		}
	}
	changed, _, err = n.executables.put(name, source)
	return changed, err
}

// recount is the maximum age of the count of references.
const recount = time.Minute

// fillGaps keeps a no-op executable at the path of each replaced executable while sandboxes need it
// for their removal.
func (n *Node) fillGaps(s Settings, j *journal.Journal, status *Status) {
	if s.Noop == "" {
		return
	}
	for _, plugin := range s.TakeOver {
		noop := n.isNoop(s, j, plugin)
		_, recorded := j.Entry(binKey(plugin))
		if n.executables.exists(plugin) && !noop {
			if recorded { // its owner has come back
				n.note(status, j.Forget(binKey(plugin)))
			}
			continue
		}
		references, err := n.count(s, status.At)
		if err != nil {
			n.note(status, err)
			continue
		}
		switch {
		case references[plugin].Sandboxes > 0:
			n.note(status, n.fill(s, j, plugin, status))
		case noop:
			n.note(status, n.discard(j, plugin))
		}
	}
}

// fill writes the no-op executable to the path of a plugin's.
func (n *Node) fill(s Settings, j *journal.Journal, plugin string, status *Status) error {
	changed, err := n.putNoop(j, plugin, s.Noop)
	if changed {
		status.Changes = append(status.Changes, filepath.Join(s.CNIBinDir, plugin))
	}
	if err == nil {
		status.Noops = append(status.Noops, plugin)
	}
	return err
}

// discard removes an executable of Sluice and its record.
func (n *Node) discard(j *journal.Journal, name string) error {
	if err := n.executables.remove(name); err != nil {
		return err
	}
	return j.Forget(binKey(name))
}

// isNoop reports whether the executable of a plugin is Sluice's no-op executable.
func (n *Node) isNoop(s Settings, j *journal.Journal, plugin string) bool {
	e, recorded := j.Entry(binKey(plugin))
	if !recorded || !n.executables.exists(plugin) {
		return false
	}
	if same, err := n.executables.holds(plugin, s.Noop); err == nil && same {
		return true
	}
	// It may be the executable of an earlier version.
	data, err := os.ReadFile(filepath.Join(s.CNIBinDir, plugin))
	return err == nil && e.Wrote(data)
}

// count returns how many cached results name each plugin, with a limited age.
func (n *Node) count(s Settings, now time.Time) (map[string]Use, error) {
	if n.references != nil && now.Sub(n.counted) < recount {
		return n.references, nil
	}
	references, err := References(s.ResultDirs, s.OwnPod)
	if err != nil {
		return nil, fmt.Errorf("cached results: %w", err)
	}
	n.references, n.counted = references, now
	return references, nil
}

// note reports an error that does not affect pods.
func (n *Node) note(status *Status, err error) {
	if err != nil {
		p := problemOf(err)
		p.Blocking = false
		status.add(p)
	}
}
