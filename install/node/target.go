package node

import (
	"bytes"
	"io/fs"

	"github.com/sluice-mesh/sluice/install/journal"
)

// A Target is the desired state of a file in the configuration directory.
type Target struct {
	// Name is the name without the directory.
	Name string
	// Current is the content that was read; nil if the file does not exist. If the file has other
	// content when the target is applied, the file is not changed and the target fails.
	Current []byte
	// Content is the desired content; nil if the file must not exist.
	Content []byte
	// Mode contains the permission bits. They are not set if the content is unchanged.
	Mode fs.FileMode
	// Entry is the journal entry that is written before the change; nil if it does not change.
	Entry *journal.Entry
	// Forget removes the journal entry of the file after the change.
	Forget bool
}

// isDone reports whether the file has the desired content, or does not exist and must not exist.
func (t Target) isDone() bool {
	return (t.Current == nil) == (t.Content == nil) && bytes.Equal(t.Current, t.Content)
}

// State is the desired state of the configuration directory.
type State struct {
	// Files are the targets, in the order in which they must be applied.
	Files []Target
	// Primary is the name of the file that runtimes use after the targets are applied; empty if
	// there is none.
	Primary string
	// Plugins is the current chain of that file; nil if it cannot be read.
	Plugins []string
	// Problems are deviations from the desired state, and facts that a user should know.
	Problems []Problem
}

// PendingTargets returns the targets that still have to be applied, in order: the content of the
// file or its journal entry must change.
func PendingTargets(desired State) []Target {
	var pending []Target
	for _, t := range desired.Files {
		if !t.isDone() || t.Entry != nil || t.Forget {
			pending = append(pending, t)
		}
	}
	return pending
}

// report adds a problem.
func (s *State) report(reason Reason, blocking bool, format string, args ...any) {
	s.Problems = append(s.Problems, newProblem(reason, blocking, format, args...))
}
