package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/plugin/record"
)

// records contains the records of the plugin's ADD.
type records struct {
	index      *record.Index // nil if no directory is configured
	candidates candidates
}

// refresh reads new and changed records. If several files cannot be read, the error contains their
// number, and the reason for the first.
func (r *records) refresh() error {
	if r.index == nil {
		return nil
	}
	var errs fileErrors
	if err := r.index.Refresh(); err != nil {
		errs.add(err)
	}
	for _, err := range r.index.Unusable() {
		errs.add(err)
	}
	r.candidates = newCandidates()
	for _, stored := range r.index.All() {
		r.candidates.add(candidate{
			pod: Pod{
				Namespace: stored.Pod.Namespace, Name: stored.Pod.Name, UID: stored.Pod.UID,
			},
			containerID: stored.ContainerID, path: canonicalPath(stored.Netns), time: stored.Time,
		})
	}
	return errs.in(Record)
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
