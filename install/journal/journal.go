package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Journal records the changes that were made to files of the node. It is stored in the state
// directory; [Open] returns it. At most one process, which holds the [Lock], and one goroutine may
// use it at a time.
type Journal struct {
	path    string
	entries map[string]Entry
}

const (
	fileName    = "journal.json"
	damagedName = "journal.damaged"
	version     = 1
)

// content is the format of the journal's file.
type content struct {
	Version int              `json:"version"`
	Entries map[string]Entry `json:"entries"`
}

// ErrDamaged is the error for a journal that cannot be decoded.
var ErrDamaged = errors.New("the journal is damaged")

// Open reads the journal of a state directory, and creates the directory if it does not exist. If
// the journal is damaged, Open tries to rename its file, and returns an empty, usable journal and
// an error that wraps [ErrDamaged]. A file that is not regular or too large, or that the disk cannot
// read, is damaged too. A journal of a newer program is an error.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	j := &Journal{path: filepath.Join(dir, fileName), entries: map[string]Entry{}}
	data, err := file.ReadRegular(j.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return j, nil
	case isUnreadable(err):
		return j, j.renameDamaged(err)
	case err != nil:
		return nil, err
	}
	c := content{}
	err = file.DecodeVersioned(data, version, &c)
	if errors.Is(err, file.ErrNewer) {
		return nil, fmt.Errorf("%s: %w", j.path, err)
	}
	if err == nil && c.Version < 1 {
		err = fmt.Errorf("version %d is not a version of the format", c.Version)
	}
	if err != nil {
		return j, j.renameDamaged(err)
	}
	maps.Copy(j.entries, c.Entries)
	return j, nil
}

// isUnreadable reports whether a file will not become readable again: it is not regular, too large
// or a link to itself, or the disk or the file system is damaged.
func isUnreadable(err error) bool {
	return errors.Is(err, file.ErrNotRegular) || errors.Is(err, file.ErrTooLarge) ||
		errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) ||
		errors.Is(err, unix.EBADMSG) || errors.Is(err, unix.ELOOP)
}

// renameDamaged renames a damaged journal, and returns the error for the caller of [Open].
func (j *Journal) renameDamaged(reason error) error {
	renamed := j.damagedPath()
	if err := os.Rename(j.path, renamed); err != nil {
		return fmt.Errorf("%s: %w: %w; it cannot be renamed: %w", j.path, ErrDamaged, reason, err)
	}
	return fmt.Errorf("%s: %w: %w; it was renamed to %s", j.path, ErrDamaged, reason, renamed)
}

// damagedPath returns the path to which a damaged journal is renamed.
func (j *Journal) damagedPath() string { return filepath.Join(filepath.Dir(j.path), damagedName) }

// Entry returns the entry of the file at path, and reports whether there is one.
func (j *Journal) Entry(path string) (Entry, bool) {
	e, ok := j.entries[path]
	return e, ok
}

// Paths returns the sorted paths of the files that have an entry.
func (j *Journal) Paths() []string { return slices.Sorted(maps.Keys(j.entries)) }

// Record stores the entry of the file at path, and replaces an earlier one. When it returns without
// an error, the entry is on disk.
func (j *Journal) Record(path string, e Entry) error {
	return j.change(func(entries map[string]Entry) { entries[path] = e })
}

// Forget removes the entries of files that have been restored completely.
func (j *Journal) Forget(paths ...string) error {
	hasEntry := func(path string) bool { _, ok := j.entries[path]; return ok }
	if !slices.ContainsFunc(paths, hasEntry) {
		return nil
	}
	return j.change(func(entries map[string]Entry) {
		for _, path := range paths {
			delete(entries, path)
		}
	})
}

// change writes the changed entries to the disk, and then replaces the entries in memory.
func (j *Journal) change(change func(entries map[string]Entry)) error {
	entries := maps.Clone(j.entries)
	change(entries)
	data, err := json.MarshalIndent(content{version, entries}, "", "  ")
	if err != nil {
		return err
	}
	if _, err := file.Write(j.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.entries = entries
	return nil
}

// Discard removes the journal's file, and a damaged journal that [Open] has renamed. The journal
// must not contain entries.
func (j *Journal) Discard() error {
	if len(j.entries) != 0 {
		return fmt.Errorf("%s still has entries: %v", j.path, j.Paths())
	}
	_, err := file.Remove(j.path)
	return errors.Join(err, os.RemoveAll(j.damagedPath()))
}
