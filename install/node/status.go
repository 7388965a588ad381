package node

import (
	"maps"
	"slices"
	"time"
)

// Status is the result of the last reconciliation. It is a value and may be kept.
type Status struct {
	// At is the time when the reconciliation began; zero before the first one.
	At time.Time
	// Primary is the file that runtimes use, without its directory, and Plugins the chain in it
	// before the reconciliation; nil if it cannot be read.
	Primary string
	Plugins []string
	// Problems are the current problems.
	Problems []Problem
	// Executable is the state of the executable with the plugin's name.
	Executable Executable
	// Directories reports whether the runtime reads the managed directories. Remount reports that
	// it does not, and that a restart with new mounts is necessary.
	Directories Directories
	Remount     bool
	// ConflictingWriters are the current conflicting writers.
	ConflictingWriters []ConflictingWriter
	// Noops are the types of plugins whose executable was replaced with the no-op executable,
	// because sandboxes still name it.
	Noops []string
	// Changes are the paths of the files that the reconciliation changed.
	Changes []string
	// Totals are counters since the start of the process.
	Totals Totals

	incomplete bool // a file may be about to be written: run the next reconciliation soon
}

// Totals are counters for metrics.
type Totals struct {
	Passes   uint64
	Changes  uint64            // files changed
	Failures uint64            // reconciliations that ended with a blocking problem
	Rewrites map[string]uint64 // writes of other programs to the agent's files, by program
	// FailedWrites are the failed writes by kind, "binary" and "configuration".
	FailedWrites map[string]uint64
}

// Executable is the state of an executable with the plugin's name.
type Executable string

// The states of an executable. The empty one is unknown: it was not read yet, or cannot be read.
const (
	Verified Executable = "verified" // identical to the agent image's
	// installed by an earlier agent, and cannot be replaced now
	Outdated     Executable = "outdated"
	OtherProgram Executable = "other program"
	Absent       Executable = "absent" // no executable file
)

// Installed reports whether the plugin is in the node's chain and its executable exists, so that it
// is called for a new pod. It is false before the first reconciliation.
func (s Status) Installed() bool {
	return !s.At.IsZero() && !slices.ContainsFunc(s.Problems, func(p Problem) bool {
		return p.Blocking
	})
}

func (s *Status) add(problems ...Problem) {
	for _, p := range problems {
		if !slices.Contains(s.Problems, p) {
			s.Problems = append(s.Problems, p)
		}
	}
}

// clone returns a copy that the next reconciliation does not change.
func (t Totals) clone() Totals {
	t.Rewrites, t.FailedWrites = maps.Clone(t.Rewrites), maps.Clone(t.FailedWrites)
	return t
}
