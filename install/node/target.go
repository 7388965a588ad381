package node

import (
	"bytes"
	"io/fs"

	"github.com/sluice-mesh/sluice/install/journal"
)

// A Target is what one file of the configuration directory should be.
type Target struct {
	// Name is without the directory.
	Name string
	// Was is what the file holds now; nil if there is none. Somebody who writes it in the meantime
	// is not overwritten.
	Was []byte
	// Content is what it should hold; nil if it should not be there.
	Content []byte
	// Mode is the permission bits; the file keeps its own where Content is the same.
	Mode fs.FileMode
	// Entry is recorded before the change; nil if the record stays as it is.
	Entry *journal.Entry
	// Forget removes the record of the file after the change.
	Forget bool
}

// done reports whether the file is as it should be.
func (t Target) done() bool {
	return (t.Was == nil) == (t.Content == nil) && bytes.Equal(t.Was, t.Content)
}

// State is what the configuration directory should be like.
type State struct {
	// Files are the targets, in the order in which they must be made true.
	Files []Target
	// Primary is the name of the file that runtimes take, once the targets are true; empty if there
	// is none.
	Primary string
	// Plugins is the chain of that file as it is now; nil if it cannot be read.
	Plugins []string
	// Problems are what cannot be as it should, and what a user should know.
	Problems []Problem
}

// Compare returns the targets that are not true yet, in their order.
func Compare(desired State) []Target {
	var missing []Target
	for _, t := range desired.Files {
		if !t.done() || t.Entry != nil || t.Forget {
			missing = append(missing, t)
		}
	}
	return missing
}

func (s *State) report(reason Reason, blocking bool, format string, args ...any) {
	s.Problems = append(s.Problems, problem(reason, blocking, format, args...))
}
