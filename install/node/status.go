package node

import (
	"maps"
	"slices"
	"time"
)

// Status is what the last pass found and did. It is a value: keep it as long as you like.
type Status struct {
	// At is when the pass began; the zero time before the first one.
	At time.Time
	// Primary is the file that runtimes take, without its directory, and Plugins the chain in it
	// before the pass; nil if it cannot be read.
	Primary string
	Plugins []string
	// Problems are what is not as it should be; none if all is well.
	Problems []Problem
	// Executable says what has the plugin's name in the directory of executables.
	Executable Executable
	// Directories say whether the runtime reads the directories that are kept. Remount says that it
	// does not, and that only a process with new mounts can keep those that it reads.
	Directories Directories
	Remount     bool
	// ConflictingWriters are those who are writing over our files now.
	ConflictingWriters []ConflictingWriter
	// Noops are the types of plugins in whose place an executable lies that does nothing, for the
	// sandboxes that still name them.
	Noops []string
	// Changes are the files that the pass changed, with their paths.
	Changes []string
	// Totals count since the start of the process.
	Totals Totals

	settling bool // a file may be about to be written: look again soon
}

// Totals are counters, fit for metrics.
type Totals struct {
	Passes   uint64
	Changes  uint64            // files changed
	Failures uint64            // passes that ended with a blocking problem
	Rewrites map[string]uint64 // what others wrote over ours, by writer
	// FailedWrites are writes that failed, by "binary" and "configuration".
	FailedWrites map[string]uint64
}

// Executable says what an executable of the plugin's name is, by its content.
type Executable string

// What an executable may be. The empty one is not known: it was not looked at yet, or cannot be
// read.
const (
	Verified Executable = "verified" // the one of the agent's image
	Outdated Executable = "outdated" // one that an earlier agent installed, and that cannot be replaced now
	Wrong    Executable = "wrong"    // a program of others
	Absent   Executable = "absent"   // there is none that can be run
)

// Installed reports whether the plugin is in the chain of the node and its executable is there: a
// pod that starts now meets it. It is false before the first pass.
func (s Status) Installed() bool {
	return !s.At.IsZero() && !slices.ContainsFunc(s.Problems, func(p Problem) bool { return p.Blocking })
}

func (s *Status) add(problems ...Problem) {
	for _, p := range problems {
		if !slices.Contains(s.Problems, p) {
			s.Problems = append(s.Problems, p)
		}
	}
}

// clone keeps a status from changing under those who have it.
func (t Totals) clone() Totals {
	t.Rewrites, t.FailedWrites = maps.Clone(t.Rewrites), maps.Clone(t.FailedWrites)
	return t
}
