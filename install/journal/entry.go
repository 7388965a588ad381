package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"slices"
)

// Kind is what was done to a file.
type Kind string

// The kinds.
const (
	Edited    Kind = "edited"    // it was there before, and others own it
	Created   Kind = "created"   // it was not there before
	Converted Kind = "converted" // it was made instead of another file, which was removed
)

// An Entry describes what was changed.
type Entry struct {
	Kind Kind `json:"kind"`
	// Original is what the file held before us; of a converted one, what the removed file held; of
	// a created one nothing.
	Original []byte `json:"original,omitempty"`
	// From is the name of the removed file; of a converted one only.
	From string `json:"from,omitempty"`
	// Mode is the permission bits of the original.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Written are the checksums of what we wrote: one, or two while a change may be under way.
	Written []string `json:"written"`
	// Versions are the checksums of the plugin's executables that were installed, the newest last;
	// of no other file. One of them may stay in use as long as it cannot be replaced.
	Versions []string `json:"versions,omitempty"`
	// Taken are the elements of other plugins in whose place ours came, as they were written.
	Taken [][]byte `json:"taken,omitempty"`
}

// Wrote reports whether data is what we wrote, and nobody after us.
func (e Entry) Wrote(data []byte) bool { return slices.Contains(e.Written, Sum(data)) }

// Writing returns the entry for a change of the file from what it holds now to content. Until the
// change is made the file may hold what we wrote earlier.
func (e Entry) Writing(now, content []byte) Entry {
	next := e
	next.Written = []string{Sum(content)}
	if sum := Sum(now); e.Wrote(now) && sum != next.Written[0] {
		next.Written = append(next.Written, sum)
	}
	return next
}

// Sum is the checksum by which contents are recognised.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
