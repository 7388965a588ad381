package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/record"
)

// records contains the records of the plugin's ADD. A record is read again after a change: an ADD
// for a later sandbox with the same container ID replaces it.
type records struct {
	disabled   bool // no directory is configured
	store      record.Store
	known      map[record.Key]knownRecord // the records that have been read
	candidates candidates
}

type knownRecord struct {
	version   record.FileVersion
	candidate candidate
}

// refresh reads new and changed records. The error contains the number of records that cannot be
// read, and the reason for one of them. The next refresh tries to read them again.
func (r *records) refresh() error {
	if r.disabled {
		return nil
	}
	keys, err := r.store.Keys()
	if err != nil {
		return errorIn(Record, err)
	}
	var errs fileErrors
	known := make(map[record.Key]knownRecord, len(keys))
	isChanged := false
	for _, k := range keys {
		found, err := r.read(k)
		if err != nil {
			errs.add(err)
			continue
		}
		known[k] = found
		isChanged = isChanged || found != r.known[k]
	}
	if isChanged || len(known) != len(r.known) {
		r.candidates = newCandidates()
		for _, k := range keys {
			if found, ok := known[k]; ok {
				r.candidates.add(found.candidate)
			}
		}
	}
	r.known = known
	return errs.in(Record)
}

// read returns a record. It reads the file only if the file has changed.
func (r *records) read(k record.Key) (knownRecord, error) {
	version, err := r.store.Version(k)
	if err != nil {
		return knownRecord{}, err
	}
	if known, ok := r.known[k]; ok && known.version == version {
		return known, nil
	}
	stored, err := r.store.Get(k)
	if err != nil {
		return knownRecord{}, err
	}
	return knownRecord{version, candidate{
		pod: Pod{
			Namespace: stored.Pod.Namespace, Name: stored.Pod.Name, UID: stored.Pod.UID,
		},
		containerID: stored.ContainerID, path: canonicalPath(stored.Netns), time: stored.Time,
	}}, nil
}

// fileErrors counts the errors of reading a source's files, and keeps the first one.
type fileErrors struct {
	first error
	count int
}

// add adds an error, unless it means that the file was removed, or the process of a file below
// /proc ended, since the directory was listed.
func (e *fileErrors) add(err error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return
	}
	if e.count++; e.first == nil {
		e.first = err
	}
}

// in returns the errors as one error of a source, or nil.
func (e *fileErrors) in(s Source) error {
	if e.count > 1 {
		return errorIn(s, fmt.Errorf("%d files cannot be read, among them: %w", e.count, e.first))
	}
	if e.count == 1 {
		return errorIn(s, e.first)
	}
	return nil
}
