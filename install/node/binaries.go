package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-mesh/sluice/install/journal"
)

// install puts the executables in place. It reports whether the one of the plugin is there at all, and whether it is not the one
// that the configuration was written for.
func (n *Node) install(s Settings, j *journal.Journal, status *Status) (outdated, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(s.Binaries)) {
		path := filepath.Join(s.CNIBinDir, name)
		changed, disturbed, err := n.put(j, name, s.Binaries[name], "")
		if changed {
			status.Changes = append(status.Changes, path)
		}
		if disturbed {
			n.rivals.count(status.At, path, "", stranger)
		}
		if err == nil {
			continue
		}
		p := problemOf(err)
		if name == s.Type {
			outdated = true
			// An earlier version does its work.
			p.Blocking = !n.executables.exists(name)
		}
		status.add(p)
	}
	return outdated, n.executables.exists(s.Type)
}

// put records and copies an executable. The checksum is kept where the file will have to be recognised without its source.
func (n *Node) put(j *journal.Journal, name, source, sum string) (changed, disturbed bool, err error) {
	if e, recorded := j.Entry(binKey(name)); !recorded || sum != "" && !slices.Contains(e.Written, sum) {
		e.Kind = journal.Created
		if sum != "" {
			e.Written = append(e.Written, sum)
		}
		if err := j.Note(binKey(name), e); err != nil {
			return false, false, err
		}
	}
	return n.executables.put(name, source)
}

// recount is how old the count of references may be.
const recount = time.Minute

// fillGaps keeps an executable that does nothing in the place of each that ours came instead of, while there are sandboxes whose
// removal needs it.
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

// fill puts the executable that does nothing in the place of a plugin's.
func (n *Node) fill(s Settings, j *journal.Journal, plugin string, status *Status) error {
	sum, err := n.executables.sum(s.Noop)
	if err != nil {
		return err
	}
	changed, _, err := n.put(j, plugin, s.Noop, sum)
	if changed {
		status.Changes = append(status.Changes, filepath.Join(s.CNIBinDir, plugin))
	}
	if err == nil {
		status.Noops = append(status.Noops, plugin)
	}
	return err
}

// discard removes an executable of ours and its record.
func (n *Node) discard(j *journal.Journal, name string) error {
	if err := n.executables.remove(name); err != nil {
		return err
	}
	return j.Forget(binKey(name))
}

// isNoop reports whether the executable of a plugin is one that we put there to do nothing.
func (n *Node) isNoop(s Settings, j *journal.Journal, plugin string) bool {
	e, recorded := j.Entry(binKey(plugin))
	if !recorded || !n.executables.exists(plugin) {
		return false
	}
	if same, err := n.executables.holds(plugin, s.Noop); err == nil && same {
		return true
	}
	// Perhaps that of an earlier version.
	data, err := os.ReadFile(filepath.Join(s.CNIBinDir, plugin))
	return err == nil && e.Wrote(data)
}

// count returns how many cached results name each plugin, as it was not long ago.
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

// note reports a failure that leaves pods alone.
func (n *Node) note(status *Status, err error) {
	if err != nil {
		p := problemOf(err)
		p.Blocking = false
		status.add(p)
	}
}
