package node

import (
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/install/chain"
	"github.com/sluice-mesh/sluice/install/journal"
)

// confEntries returns the journal's entries of configuration files by name.
func confEntries(j *journal.Journal) map[string]journal.Entry {
	entries := map[string]journal.Entry{}
	for _, path := range j.Paths() {
		if name, ok := strings.CutPrefix(path, confKey("")); ok {
			entries[name], _ = j.Entry(path)
		}
	}
	return entries
}

// notice counts conflicting writes, and relaxes constraints where that is harmless.
func (n *Node) notice(s Settings, f Found, state State, now time.Time) {
	for _, t := range state.Files {
		if e := f.Entries[t.Name]; t.done() || t.Forget || e.Wrote(t.Was) {
			continue
		}
		n.conflicts.rewritten(now, t.Name, blame(s, f, t.Name, state.Plugins))
	}
	for _, r := range n.conflicts.active(now) {
		n.conflicts.yield(now, s, f.Files[r.File])
	}
}

// addConflicts adds the conflicting writers to a status. They are not a problem if the plugin is in
// the chain nevertheless, or nearly all of the time.
func (n *Node) addConflicts(status *Status) {
	status.ConflictingWriters = n.conflicts.active(status.At)
	relaxed := n.conflicts.relaxedAt(status.At)
	for _, r := range status.ConflictingWriters {
		status.add(problem(Contested, r.fast() && (r.Plugin == "" || relaxed == Relaxed{}), "%v",
			r))
	}
}

// yield relaxes the constraint that a conflicting writer violates, if the file contains the plugin
// nevertheless.
func (r *conflicts) yield(now time.Time, s Settings, file File) {
	list, err := chain.Parse(file.Data)
	if err != nil || !list.Has(s.Type) {
		return
	}
	for _, plugin := range s.TakeOver {
		if list.Has(plugin) {
			r.relax(now, Relaxed{Together: true})
			return
		}
	}
	if list.Inspect(s.Type, s.Element) == chain.NotLast {
		r.relax(now, Relaxed{Position: true})
	}
}
