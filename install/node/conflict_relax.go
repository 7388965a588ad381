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

// noteConflicts counts conflicting writes, and relaxes constraints that conflicting writers violate
// without removing the plugin from the chain.
func (n *Node) noteConflicts(s Settings, found Actual, state State, now time.Time) {
	for _, t := range state.Files {
		switch e := found.Entries[t.Name]; {
		case t.Forget:
		case t.isDone():
			n.conflicts.noteUnchanged(t.Name, journal.Sum(t.Current))
		case n.conflicts.isWritten(t.Name, t.Current, e):
		case e.IsLastWritten(t.Current):
			// The entry was changed by another process that uses the journal.
			n.conflicts.noteRewrite(now, t.Name, s.Type, anotherAgent)
		default:
			plugin := pluginOfWriter(s, found, t.Name, state.Plugins)
			n.conflicts.noteRewrite(now, t.Name, plugin, writerOf(plugin))
		}
	}
	for _, w := range n.conflicts.active(now) {
		n.conflicts.relaxViolated(now, s, found.Files[w.File])
	}
}

// addConflicts adds the conflicting writers to a status, each with a problem. The problem is
// blocking if the writes are frequent, unless the file is a configuration and a constraint is
// relaxed to keep the plugin in the chain.
func (n *Node) addConflicts(status *Status) {
	status.ConflictingWriters = n.conflicts.active(status.At)
	relaxed := n.conflicts.relaxedAt(status.At)
	for _, w := range status.ConflictingWriters {
		blocking := w.isFast() && (w.Plugin == "" || relaxed == Relaxed{})
		status.add(newProblem(ConflictingWrites, blocking, "%v", w))
	}
}

// relaxViolated relaxes the constraint that a conflicting writer violates, if the file still
// contains the plugin.
func (cs *conflicts) relaxViolated(now time.Time, s Settings, file File) {
	list, err := chain.Parse(file.Data)
	if err != nil || !list.Has(s.Type) {
		return
	}
	for _, plugin := range s.ReplacedTypes {
		if list.Has(plugin) {
			cs.relax(now, Relaxed{KeepReplaced: true})
			return
		}
	}
	if list.Inspect(s.Type, s.Element) == chain.NotLast {
		cs.relax(now, Relaxed{Position: true})
	}
}
