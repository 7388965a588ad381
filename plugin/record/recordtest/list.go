// Package recordtest reads all records of a store for tests.
package recordtest

import (
	"errors"
	"io/fs"

	"github.com/sluice-mesh/sluice/plugin/record"
)

// List returns all records of a store in the order of their keys. The error, which may come with
// records, names the files that are unusable or cannot be read.
func List(s record.Store) ([]record.Record, error) {
	keys, err := s.Keys()
	var records []record.Record
	for _, k := range keys {
		r, readErr := s.Get(k)
		if readErr == nil {
			records = append(records, r)
		} else if !errors.Is(readErr, fs.ErrNotExist) {
			err = errors.Join(err, readErr)
		}
	}
	return records, err
}
