package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// install installs the executables. ok means that the plugin's executable is installed, in this or
// another version, so that a configuration may name the plugin. outdated means that it is not known
// to be the version in the agent's image, so that existing elements of the plugin must not change.
func (n *Node) install(s Settings, j *journal.Journal, status *Status) (outdated, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(s.Binaries)) {
		path := filepath.Join(s.CNIBinDir, name)
		changed, foreignChange, err := n.putVersion(s, j, name, status)
		if changed {
			status.Changes = append(status.Changes, path)
		}
		if foreignChange {
			n.conflicts.count(status.At, path, "", unknownWriter)
		}
		n.countFailed(s, err, status)
		if name == s.Type {
			status.Executable = n.executables.classify(name, s.Binaries[name], versions(j, name))
			outdated = status.Executable != Verified
		}
		switch {
		case err == nil:
		case name == s.Type && status.Executable == OtherProgram:
			status.add(n.wrongExecutable(path, s.Binaries[name], err))
		default:
			p := problemOf(err)
			// Another version of the plugin redirects pods too.
			p.Blocking = name != s.Type || status.Executable != Outdated
			status.add(p)
		}
	}
	return outdated, status.Executable == Verified || status.Executable == Outdated
}

// wrongExecutable returns the problem that another program has the plugin's name.
func (n *Node) wrongExecutable(path, source string, cause error) Problem {
	found, err := n.executables.sum(path)
	if err != nil {
		found = "unknown (" + err.Error() + ")"
	}
	desired, err := n.executables.sum(source)
	if err != nil {
		desired = "unknown (" + err.Error() + ")"
	}
	return newProblem(WrongExecutable, true, "%s is not the plugin: its sha256 is %s, "+
		"the plugin in the agent's image has %s; it cannot be replaced: %v; "+
		"pods that start now have no redirection: make the file and its directory writable "+
		"(chattr -i), or unmount what is mounted there (umount)", path, found, desired, cause)
}

// countFailed counts err if it is the error of a failed write: as "binary" for a file in CNIBinDir,
// and as "configuration" for another file, such as the journal. It sets writeFailed of the status
// if the file is in a managed directory.
func (n *Node) countFailed(s Settings, err error, status *Status) {
	var failed *file.Error
	if !errors.As(err, &failed) || errors.Is(err, file.ErrChanged) {
		return
	}
	part := "configuration"
	switch filepath.Dir(failed.Path) {
	case filepath.Clean(s.CNIBinDir):
		part, status.writeFailed = "binary", true
	case filepath.Clean(s.CNIConfDir):
		status.writeFailed = true
	}
	n.totals.FailedWrites[part]++
}

// maxVersions is the maximum number of recorded versions of an executable.
const maxVersions = 16

// versions returns the checksums of the installed versions of an executable.
func versions(j *journal.Journal, name string) []string {
	e, _ := j.Entry(binKey(name))
	return e.Versions
}

// putVersion copies an executable with [executables.put], and returns the results of put. Before
// this, it adds the version to the executable's journal entry, and for the plugin's executable also
// the plugin's element, unless the entry contains them. If the entry cannot be written, the
// executable is copied only if the journal already has an entry for the name.
func (n *Node) putVersion(
	s Settings, j *journal.Journal, name string, status *Status,
) (changed, foreignChange bool, err error) {
	source := s.Binaries[name]
	sum, err := n.executables.sum(source)
	if err != nil {
		return false, false, err
	}
	old, hasEntry := j.Entry(binKey(name))
	e := old
	if !slices.Contains(e.Versions, sum) {
		kept := e.Versions[max(0, len(e.Versions)-maxVersions+1):]
		e.Versions = append(slices.Clip(kept), sum)
	}
	if name == s.Type && !bytes.Equal(e.Elements[sum], s.Element) {
		e.Elements = maps.Clone(e.Elements)
		maps.DeleteFunc(e.Elements, func(version string, _ []byte) bool {
			return !slices.Contains(e.Versions, version)
		})
		if e.Elements == nil {
			e.Elements = map[string][]byte{}
		}
		e.Elements[sum] = s.Element
	}
	if !slices.Equal(e.Versions, old.Versions) ||
		!maps.EqualFunc(e.Elements, old.Elements, bytes.Equal) {
		e.Kind = journal.Created
		if err := j.Record(binKey(name), e); err != nil {
			if !hasEntry {
				return false, false, err
			}
			n.addHarmless(status,
				fmt.Errorf("write the journal entry of the new version of %s: %w", name, err))
		}
	}
	return n.executables.put(name, source)
}

// installedElement returns the element that was written for the version of the plugin's executable
// that is installed, or nil if it is unknown.
func (n *Node) installedElement(s Settings, j *journal.Journal) json.RawMessage {
	e, _ := j.Entry(binKey(s.Type))
	sum, err := n.executables.sum(filepath.Join(s.CNIBinDir, s.Type))
	if err != nil {
		return nil
	}
	return e.Elements[sum]
}

// putNoop adds the checksum of the no-op executable to the journal entry of name, unless the entry
// contains the checksum, and copies the executable. A later version of the agent, whose no-op
// executable may differ, recognizes the copy by the checksum.
func (n *Node) putNoop(j *journal.Journal, name, source string) (changed bool, err error) {
	sum, err := n.executables.sum(source)
	if err != nil {
		return false, err
	}
	if e, hasEntry := j.Entry(binKey(name)); !hasEntry || !slices.Contains(e.Written, sum) {
		e.Kind, e.Written = journal.Created, append(e.Written, sum)
		if err := j.Record(binKey(name), e); err != nil {
			return false, err
		}
	}
	changed, _, err = n.executables.put(name, source)
	return changed, err
}

// maxCountAge is the maximum age of the reference counts.
const maxCountAge = time.Minute

// updateNoops writes the no-op executable to the path of each replaced plugin whose executable is
// missing while sandboxes need it for DEL. When no sandbox needs the no-op executable, updateNoops
// removes it.
func (n *Node) updateNoops(s Settings, j *journal.Journal, status *Status) {
	if s.Noop == "" {
		return
	}
	for _, plugin := range s.ReplacedTypes {
		isNoop := n.isNoop(s, j, plugin)
		_, hasEntry := j.Entry(binKey(plugin))
		if n.executables.exists(plugin) && !isNoop {
			if hasEntry { // another program installed the plugin again
				n.addHarmless(status, j.Forget(binKey(plugin)))
			}
			continue
		}
		references, err := n.countReferences(s, status.At)
		n.addHarmless(status, err)
		switch {
		case references[plugin].Sandboxes > 0:
			n.addHarmless(status, n.writeNoop(s, j, plugin, status))
		case isNoop && err == nil:
			n.addHarmless(status, n.discardExecutable(j, plugin))
		}
	}
}

// writeNoop writes the no-op executable to the path of a plugin.
func (n *Node) writeNoop(s Settings, j *journal.Journal, plugin string, status *Status) error {
	changed, err := n.putNoop(j, plugin, s.Noop)
	n.countFailed(s, err, status)
	if changed {
		status.Changes = append(status.Changes, filepath.Join(s.CNIBinDir, plugin))
	}
	return err
}

// discardExecutable removes an executable that Sluice installed, and its journal entry.
func (n *Node) discardExecutable(j *journal.Journal, name string) error {
	if err := n.executables.remove(name); err != nil {
		return err
	}
	return j.Forget(binKey(name))
}

// isNoop reports whether the executable of a plugin is Sluice's no-op executable. It recognizes the
// current version even if the journal was lost.
func (n *Node) isNoop(s Settings, j *journal.Journal, plugin string) bool {
	if !n.executables.exists(plugin) {
		return false
	}
	if isCopy, err := n.executables.isCopy(plugin, s.Noop); err == nil && isCopy {
		return true
	}
	e, hasEntry := j.Entry(binKey(plugin))
	if !hasEntry {
		return false
	}
	// The executable may be the no-op executable of an earlier version.
	sum, err := n.executables.sum(filepath.Join(s.CNIBinDir, plugin))
	return err == nil && slices.Contains(e.Written, sum)
}

// countReferences returns the number of sandboxes that need each plugin for DEL; see [References].
// The numbers are at most maxCountAge old. If the error is not nil, they may be too small.
func (n *Node) countReferences(s Settings, now time.Time) (map[string]ReferenceCount, error) {
	if n.references != nil && now.Sub(n.countedAt) < maxCountAge {
		return n.references, nil
	}
	references, err := References(s.ResultDirs, s.IsAgentPod)
	if err != nil {
		return references, fmt.Errorf("read the cached results of the container runtime: %w", err)
	}
	n.references, n.countedAt = references, now
	return references, nil
}

// addHarmless adds an error, unless it is nil, as a problem that does not affect pods.
func (n *Node) addHarmless(status *Status, err error) {
	if err != nil {
		p := problemOf(err)
		p.Blocking = false
		status.add(p)
	}
}
