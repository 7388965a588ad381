package node

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/sluice-mesh/sluice/install/journal"
	"github.com/sluice-mesh/sluice/plugin/file"
)

// apply applies targets in order, up to the first error. It returns the paths of changed files, and
// the changes that could not be recorded.
func (n *Node) apply(
	s Settings, j *journal.Journal, targets []Target,
) (changed []string, unrecorded []error, err error) {
	for _, t := range targets {
		path := filepath.Join(s.CNIConfDir, t.Name)
		if t.Entry != nil {
			if err := j.Record(confKey(t.Name), *t.Entry); err != nil {
				if !needsNoRecord(j, t) {
					return changed, unrecorded, err
				}
				unrecorded = append(unrecorded,
					fmt.Errorf("what others wrote into %s is not recorded: %w", t.Name, err))
			}
		}
		if !t.done() {
			if err := t.replace(path); err != nil {
				return changed, unrecorded, err
			}
			changed = append(changed, path)
			n.conflicts.wrote(t.Name)
		}
		if t.Forget {
			n.conflicts.released(t.Name)
			if err := j.Forget(confKey(t.Name)); err != nil {
				unrecorded = append(unrecorded,
					fmt.Errorf("that %s is not ours any more is not recorded: %w", t.Name, err))
			}
		}
	}
	return changed, unrecorded, nil
}

// needsNoRecord reports whether a change may be made although it cannot be recorded: the journal's
// entry is sufficient to remove the plugin from the file, and no foreign content is lost.
func needsNoRecord(j *journal.Journal, t Target) bool {
	old, recorded := j.Entry(confKey(t.Name))
	return recorded && slices.EqualFunc(old.Taken, t.Entry.Taken, slices.Equal) &&
		(old.Kind != journal.Created || t.Entry.Kind == journal.Created)
}

func (t Target) replace(path string) error {
	if t.Content == nil {
		return file.RemoveIf(path, t.Was)
	}
	return file.Replace(path, t.Was, t.Content, t.Mode)
}
