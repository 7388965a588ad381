package node

import (
	"maps"
	"slices"
	"time"
)

// Status is the result of a reconciliation. Later reconciliations do not change it.
type Status struct {
	// At is the time when the reconciliation began; zero before the first one.
	At time.Time
	// Done is the time when the last change had been made, or when it was known that none was
	// necessary.
	Done time.Time
	// Unread is set if the configurations could not be read, so that it is unknown whether runtimes
	// use the plugin. Problems then contains a blocking problem.
	Unread bool
	// Primary is the name of the file that runtimes use; empty if there is none.
	Primary string
	// Plugins is the chain in this file before the reconciliation; nil if it cannot be read.
	Plugins  []string
	Problems []Problem
	// Executable is the state of the executable with the plugin's name.
	Executable ExecutableState
	// Directories contains the states of the managed directories.
	Directories Directories
	// PluginsElsewhere contains the types of the other plugins in the chain if the directory of
	// executables contains none of them, and otherwise is nil. The runtime then probably searches
	// another directory, perhaps in addition. If it does not search the agent's directory, no pod
	// starts.
	PluginsElsewhere []string
	// Remount is set if the runtime does not use the managed directories, and a restart of the
	// agent with new mounts is necessary.
	Remount bool
	// ConflictingWriters contains the current conflicting writers.
	ConflictingWriters []ConflictingWriter
	// Changes contains the paths of the files that the reconciliation changed.
	Changes []string
	// Totals contains counters since the start of the process.
	Totals Totals

	incomplete bool // a program may be writing a file: the next reconciliation must follow soon
	// writeFailed is set if a file in a managed directory could not be written. The attempt may
	// have created and removed a temporary file there.
	writeFailed bool
}

// Totals are counters for metrics.
type Totals struct {
	Reconciliations uint64
	Rewrites        map[string]uint64 // writes by other programs to the agent's files, by program
	// FailedWrites is the number of failed writes by part of the installation: "binary" or
	// "configuration".
	FailedWrites map[string]uint64
}

// ExecutableState is the state of an executable with the plugin's name.
type ExecutableState string

// The states of an executable. The state is empty if the file has not been read, or cannot be read.
const (
	Verified ExecutableState = "verified" // identical to the executable in the agent's image
	// Outdated: another version, which cannot be replaced now, or the current version while the
	// executable in the agent's image cannot be read.
	Outdated     ExecutableState = "outdated"
	OtherProgram ExecutableState = "other program" // not installed by an agent
	Absent       ExecutableState = "absent"        // no executable file
)

// Installed reports whether no problem is blocking: as far as the agent can determine, runtimes use
// the plugin for new pods. It is false before the first reconciliation.
func (s Status) Installed() bool {
	return !s.At.IsZero() && !slices.ContainsFunc(s.Problems, func(p Problem) bool {
		return p.Blocking
	})
}

// add adds the problems that the status does not contain yet.
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
