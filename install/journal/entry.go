package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"io/fs"
	"slices"
)

// Kind is the kind of a change to a file.
type Kind string

// The kinds.
const (
	Edited    Kind = "edited"    // the file existed before, and belongs to another program
	Created   Kind = "created"   // the file did not exist before
	Converted Kind = "converted" // the file was created to replace another file, which was removed
)

// An Entry is the journal entry of a changed file.
type Entry struct {
	Kind Kind `json:"kind"`
	// Original is the content of the file before the change. For a converted file it is the content
	// of the removed file, and for a created file it is empty.
	Original []byte `json:"original,omitempty"`
	// From is the name of the removed file; only for a converted file.
	From string `json:"from,omitempty"`
	// Mode contains the permission bits of the original file.
	Mode fs.FileMode `json:"mode,omitempty"`
	// Written contains the checksum of the content that the agent wrote last. If the agent also
	// wrote the previous content, it contains that checksum too, because the process may have ended
	// before the last change. For a no-op executable it contains the checksums of all versions that
	// were written.
	Written []string `json:"written"`
	// Versions contains the checksums of the installed versions of an executable, in the order of
	// their first installation; empty for other files. An old version stays in use while it cannot
	// be replaced.
	Versions []string `json:"versions,omitempty"`
	// Elements contains, by the checksums in Versions, the element in the chain that was written
	// for each version of an executable. It is empty for other files, and lacks versions that
	// earlier releases installed.
	Elements map[string][]byte `json:"elements,omitempty"`
	// Replaced contains the unmodified elements of other plugins that were replaced in the chain.
	Replaced [][]byte `json:"taken,omitempty"`
}

// WrittenByAgent reports whether Written contains the checksum of data.
func (e Entry) WrittenByAgent(data []byte) bool { return slices.Contains(e.Written, Sum(data)) }

// IsLastWritten reports whether data is the content that the agent wrote last.
func (e Entry) IsLastWritten(data []byte) bool {
	return len(e.Written) > 0 && e.Written[0] == Sum(data)
}

// WithChange returns the entry for a change of the file's content from current to content. If the
// agent wrote current too, the entry contains both checksums, because the process may end before
// the change.
func (e Entry) WithChange(current, content []byte) Entry {
	next := e
	next.Written = []string{Sum(content)}
	if sum := Sum(current); e.WrittenByAgent(current) && sum != next.Written[0] {
		next.Written = append(next.Written, sum)
	}
	return next
}

// Sum returns the checksum of a file's content, as in [Entry.Written].
func Sum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// SumOf is like [Sum] for the content that r returns, which it does not keep in memory.
func SumOf(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
