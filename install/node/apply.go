package node

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// apply applies targets in order and stops at the first error. It returns the paths of changed
// files. recordErrors contains errors of the journal that do not prevent the change of a file.
func (n *Node) apply(
	s Settings, j *journal.Journal, targets []Target,
) (changed []string, recordErrors []error, err error) {
	for _, t := range targets {
		path := filepath.Join(s.CNIConfDir, t.Name)
		if t.Entry != nil {
			if err := j.Record(confKey(t.Name), *t.Entry); err != nil {
				if !isRecordOptional(j, t) {
					return changed, recordErrors, err
				}
				recordErrors = append(recordErrors,
					fmt.Errorf("write the journal entry of %s: %w", t.Name, err))
			}
		}
		if !t.isDone() {
			if isLink(path) {
				n.linksSignaled = false
			}
			if err := t.write(path); err != nil {
				return changed, recordErrors, err
			}
			changed = append(changed, path)
			n.conflicts.noteWritten(t.Name, journal.Sum(t.Content))
		}
		if t.Forget {
			n.conflicts.noteReleased(t.Name)
			if err := j.Forget(confKey(t.Name)); err != nil {
				recordErrors = append(recordErrors, fmt.Errorf(
					"remove the journal entry of %s, which Sluice no longer manages: %w", t.Name, err))
			}
		}
	}
	return changed, recordErrors, nil
}

// isRecordOptional reports whether a change may be made although its journal entry cannot be
// written, because the existing entry is sufficient to remove the plugin from the file without loss
// of foreign content.
func isRecordOptional(j *journal.Journal, t Target) bool {
	old, exists := j.Entry(confKey(t.Name))
	return exists && slices.EqualFunc(old.Replaced, t.Entry.Replaced, slices.Equal) &&
		(old.Kind != journal.Created || t.Entry.Kind == journal.Created)
}

// write writes or removes the file at path.
func (t Target) write(path string) error {
	if t.Content == nil {
		return file.RemoveIf(path, t.Current)
	}
	return file.Replace(path, t.Current, t.Content, t.Mode)
}

// signalLinks makes runtimes read the configurations again if one of these is a symbolic link.
// Runtimes watch only the configuration directory: they would continue to use the earlier content
// of a link's target in another directory. After a success, signalLinks does nothing until apply
// writes a link's target. The first call of a process does not know whether an earlier process was
// killed between the two steps.
func (n *Node) signalLinks(s Settings) error {
	if !n.linksSignaled && len(linkedConfigurations(s.CNIConfDir)) > 0 {
		if err := file.Signal(s.CNIConfDir); err != nil {
			return fmt.Errorf("make the runtime read its configuration again: %w", err)
		}
	}
	n.linksSignaled = true
	return nil
}
