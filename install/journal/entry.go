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
	// Versions are the checksums of installed versions of the plugin's executable, the newest last;
	// empty for other files. One of them may stay in use while it cannot be replaced.
	Versions []string `json:"versions,omitempty"`
	// Taken are the replaced elements of other plugins, unmodified.
	Taken [][]byte `json:"taken,omitempty"`
}

// Wrote reports whether data was written by the agent.
func (e Entry) Wrote(data []byte) bool { return slices.Contains(e.Written, Sum(data)) }

// Writing returns the entry for a change of the file's content from now to content. Until the
// change is made the file may contain earlier content of the agent.
func (e Entry) Writing(now, content []byte) Entry {
	next := e
	next.Written = []string{Sum(content)}
	if sum := Sum(now); e.Wrote(now) && sum != next.Written[0] {
		next.Written = append(next.Written, sum)
	}
	return next
}

// Sum returns the checksum that identifies contents.
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
