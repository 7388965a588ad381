package sandbox

import (
	"errors"
	"io/fs"
	"slices"

	"github.com/sluice-mesh/sluice/plugin/record"
)

// records contains the records of the plugin's ADD. A record is read once, because the pod and the
// namespace of a container never change.
type records struct {
	none   bool // no directory is configured
	store  record.Store
	known  map[record.Key]candidate
	claims candidates
}

// refresh reads new records. The error names the records that cannot be read. They are read again
// by the next refresh.
func (r *records) refresh() error {
	if r.none {
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
	var trouble fileErrors
	known := make(map[record.Key]candidate, len(keys))
	r.claims = newCandidates()
	for _, k := range keys {
		c, ok := r.known[k]
		if !ok {
			got, err := r.store.Get(k)
			if err != nil {
				trouble.note(err)
				continue
			}
			c = candidate{
				Pod{Namespace: got.Pod.Namespace, Name: got.Pod.Name, UID: got.Pod.UID},
				got.ContainerID,
				canonicalPath(got.Netns), got.Time,
			}
		}
		known[k] = c
		r.claims.add(c)
	}
	r.known = known
	return trouble.in(Record)
}

// fileErrors contains the errors about files of a source, of which there may be many.
type fileErrors struct {
	first error
	count int
}

func (t *fileErrors) note(err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return // removed meanwhile
	}
	if t.count++; t.first == nil {
		t.first = err
	}
}
