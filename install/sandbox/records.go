package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/sluice-mesh/sluice/plugin/record"
)

// records contains the records of the plugin's ADD. A record is read once, because the pod and the
// namespace of a container never change.
type records struct {
	disabled   bool // no directory is configured
	store      record.Store
	known      map[record.Key]candidate // the records that have been read
	candidates candidates
}

// refresh reads new records. The error contains the number of records that cannot be read, and the
// reason for one of them. The next refresh tries to read them again.
func (r *records) refresh() error {
	if r.disabled {
		return nil
	}
	keys, err := r.store.Keys()
	if err != nil {
		return errorIn(Record, err)
	}
	isNew := func(k record.Key) bool {
		_, ok := r.known[k]
		return !ok
	}
	if len(keys) == len(r.known) && !slices.ContainsFunc(keys, isNew) {
		return nil
	}
	var errs fileErrors
	known := make(map[record.Key]candidate, len(keys))
	r.candidates = newCandidates()
	for _, k := range keys {
		c, ok := r.known[k]
		if !ok {
			stored, err := r.store.Get(k)
			if err != nil {
				errs.add(err)
				continue
			}
			c = candidate{
				pod: Pod{
					Namespace: stored.Pod.Namespace, Name: stored.Pod.Name, UID: stored.Pod.UID,
				},
				containerID: stored.ContainerID, path: canonicalPath(stored.Netns), time: stored.Time,
			}
		}
		known[k] = c
		r.candidates.add(c)
	}
	r.known = known
	return errs.in(Record)
}

// fileErrors counts the errors of reading a source's files, and keeps the first one.
type fileErrors struct {
	first error
	count int
}

// add adds an error, unless it means that the file has been removed since it was listed.
func (e *fileErrors) add(err error) {
	if errors.Is(err, fs.ErrNotExist) {
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
