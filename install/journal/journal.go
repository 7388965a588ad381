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

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Journal is the record of a state directory. Values come from [Open]. A journal is used by one
// goroutine, and by one process at a time: hold the [Lock].
type Journal struct {
	path    string
	entries map[string]Entry
}

const (
	fileName    = "journal.json"
	damagedName = "journal.damaged"
	version     = 1
)

// content is the file's format.
type content struct {
	Version int              `json:"version"`
	Entries map[string]Entry `json:"entries"`
}

// ErrDamaged is in the error of a journal that cannot be understood.
var ErrDamaged = errors.New("the journal is damaged")

// Open reads the journal of a state directory, which is made if it does not exist. A damaged
// journal is put aside: then the error has [ErrDamaged] in it and the returned journal is empty but
// of use.
func Open(dir string) (*Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	j := &Journal{path: filepath.Join(dir, fileName), entries: map[string]Entry{}}
	data, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	c := content{}
	if err := json.Unmarshal(data, &c); err != nil {
		return j, j.putAside(err)
	}
	if c.Version != version {
		return nil, fmt.Errorf("%s: version %d was written by a newer program; this one understands %d", j.path, c.Version, version)
	}
	maps.Copy(j.entries, c.Entries)
	return j, nil
}

func (j *Journal) putAside(reason error) error {
	aside := filepath.Join(filepath.Dir(j.path), damagedName)
	if err := os.Rename(j.path, aside); err != nil {
		return fmt.Errorf("%s: %w: %w, and cannot be put aside: %w", j.path, ErrDamaged, reason, err)
	}
	return fmt.Errorf("%s: %w: %w; it is kept as %s", j.path, ErrDamaged, reason, aside)
}

// Entry returns what was done to the file at path, if anything.
func (j *Journal) Entry(path string) (Entry, bool) {
	e, ok := j.entries[path]
	return e, ok
}

// Paths returns the files that have an entry, in order.
func (j *Journal) Paths() []string { return slices.Sorted(maps.Keys(j.entries)) }

// Note records what will be done to the file at path, in the place of an earlier entry. When it
// returns without an error the record is on disk.
func (j *Journal) Note(path string, e Entry) error {
	before, had := j.entries[path]
	j.entries[path] = e
	if err := j.save(); err != nil {
		if delete(j.entries, path); had {
			j.entries[path] = before
		}
		return err
	}
	return nil
}

// Forget removes the entries of files that are as if we had never been there.
func (j *Journal) Forget(paths ...string) error {
	before := maps.Clone(j.entries)
	for _, path := range paths {
		delete(j.entries, path)
	}
	if len(before) == len(j.entries) {
		return nil
	}
	if err := j.save(); err != nil {
		j.entries = before
		return err
	}
	return nil
}

func (j *Journal) save() error {
	data, err := json.MarshalIndent(content{version, j.entries}, "", "  ")
	if err != nil {
		return err
	}
	if _, err := file.Write(j.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// Discard removes the journal's file, which must have no entries.
func (j *Journal) Discard() error {
	if len(j.entries) != 0 {
		return fmt.Errorf("%s still has entries: %v", j.path, j.Paths())
	}
	_, err := file.Remove(j.path)
	return err
}
