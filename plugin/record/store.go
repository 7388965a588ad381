package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/plugin/file"
)

// A Store is a directory of records. Its methods are safe for concurrent use, also by several
// processes: a reader finds the old record, the new one or none. Put creates the directory.
type Store struct{ dir string }

// In returns the store below the plugin's run directory.
func In(runDir string) Store { return Store{filepath.Join(runDir, "attachments")} }

const suffix = ".json"

// fileName returns the name of the record's file. Container ids and interface names contain no
// colons.
func (k Key) fileName() string { return k.ContainerID + ":" + k.IfName + suffix }

// Put stores the record and replaces an earlier one of the attachment. The key must be valid.
func (s Store) Put(r Record) error {
	if err := s.put(r); err != nil {
		return fmt.Errorf("store the record of attachment %s: %w", r.Key, err)
	}
	return nil
}

func (s Store) put(r Record) error {
	if err := r.Validate(); err != nil {
		return err
	}
	data, err := json.Marshal(storedRecord{version, r})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	// The file need not survive a crash of the node, because the sandbox does not.
	return file.WriteNoSync(filepath.Join(s.dir, r.fileName()), append(data, '\n'))
}

// Get returns the record of an attachment. If there is no record, the error wraps [fs.ErrNotExist].
// See [IsUnusable] for files without a usable record.
func (s Store) Get(k Key) (Record, error) {
	if err := k.Validate(); err != nil {
		return Record{}, err
	}
	return s.read(k.fileName())
}

// read returns the record in the file with the name.
func (s Store) read(name string) (Record, error) {
	path := filepath.Join(s.dir, name)
	data, err := file.ReadRegular(path)
	if errors.Is(err, file.ErrNotRegular) || errors.Is(err, file.ErrTooLarge) {
		return Record{}, fmt.Errorf("%w: %w", errUnusable, err)
	}
	if err != nil {
		return Record{}, err
	}
	r, err := decode(data)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w: %w", path, errUnusable, err)
	}
	if r.fileName() != name {
		return Record{}, fmt.Errorf("%s: %w: it names attachment %s", path, errUnusable, r.Key)
	}
	if err := r.checkContent(); err != nil {
		return Record{}, fmt.Errorf("%s: %w: %w", path, errUnusable, err)
	}
	return r, nil
}

// decode decodes a file.
func decode(data []byte) (Record, error) {
	var s storedRecord
	err := file.DecodeVersioned(data, version, &s)
	return s.Record, err
}

// Remove removes the record of an attachment, and the temporary files of processes that were killed
// while they wrote this record. A missing record is not an error.
func (s Store) Remove(k Key) error {
	if err := k.Validate(); err != nil {
		return err
	}
	names, err := s.names()
	for _, name := range names {
		if name == k.fileName() || strings.HasPrefix(name, file.TempPrefix(k.fileName())) {
			err = errors.Join(err, s.remove(name))
		}
	}
	return err
}

// remove removes a file. A missing file is not an error.
func (s Store) remove(name string) error {
	if err := os.Remove(filepath.Join(s.dir, name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Keys returns the keys of all records in order. It reads only the names of the files, which may be
// unusable.
func (s Store) Keys() ([]Key, error) {
	names, err := s.names()
	var keys []Key
	for _, name := range names {
		id, ifname, _ := strings.Cut(strings.TrimSuffix(name, suffix), ":")
		if k := (Key{id, ifname}); k.fileName() == name && id != "" && ifname != "" {
			keys = append(keys, k)
		}
	}
	return keys, err
}

// Of returns the records of all attachments of a container in the order of their keys. The error
// names the files that are unusable or cannot be read; the other records are returned with it.
func (s Store) Of(containerID string) ([]Record, error) { return s.readFiles(containerID+":", "") }

// Others returns the records of the container's attachments other than k. The order and the error
// are as for [Store.Of].
func (s Store) Others(k Key) ([]Record, error) { return s.readFiles(k.ContainerID+":", k.fileName()) }

// readFiles returns the records of the files whose names have the prefix, except for one file.
func (s Store) readFiles(prefix, except string) ([]Record, error) {
	names, err := s.names()
	var records []Record
	for _, name := range names {
		if strings.HasPrefix(name, ".") || !strings.HasPrefix(name, prefix) ||
			!strings.HasSuffix(name, suffix) || name == except {
			continue
		}
		r, readErr := s.read(name)
		if readErr == nil {
			records = append(records, r)
		} else if !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
	}
	return records, err
}

// names returns the names of the regular files in the directory, in order.
func (s Store) names() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Prune removes the records of all attachments to a network except the valid ones, and returns the
// keys of the removed records. It also removes temporary and unusable files of all networks, but
// keeps records of a newer program, because that program may be installed again. ADD to the same
// network must not run at the same time; CNI guarantees this for GC.
func (s Store) Prune(network string, valid []Key) ([]Key, error) {
	names, err := s.names()
	var removed []Key
	for _, name := range names {
		if s.isBeingWritten(name) {
			continue
		}
		r, readErr := s.read(name)
		switch {
		case readErr == nil && (r.Network != network || slices.Contains(valid, r.Key)):
			continue
		case errors.Is(readErr, fs.ErrNotExist), errors.Is(readErr, file.ErrNewer):
			continue
		case readErr != nil && !IsUnusable(readErr):
			err = errors.Join(err, readErr)
			continue
		}
		if removeErr := s.remove(name); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		if readErr == nil {
			removed = append(removed, r.Key)
		}
	}
	return removed, err
}

// maxWriteTime is longer than Put needs to write a temporary file and to rename it.
const maxWriteTime = time.Minute

// isBeingWritten reports whether a file is a temporary file that a running ADD may rename, for
// example of a network that Multus attaches to a running pod.
func (s Store) isBeingWritten(name string) bool {
	if !strings.HasPrefix(name, ".") {
		return false
	}
	info, err := os.Lstat(filepath.Join(s.dir, name))
	// The age is negative if the clock was set back.
	return err == nil && time.Since(info.ModTime()).Abs() < maxWriteTime
}
