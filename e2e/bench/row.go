package bench

import (
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// A Row is one task.
type Row struct {
	// ID, Topic, Name, Note and Plotted have the meaning of the fields of report.Row.
	ID, Topic, Name, Note string
	Plotted               report.Quantity
	// RoundsFactor multiplies the number of rounds; 0 means 1.
	RoundsFactor float64
	Candidates   []Candidate
	Goals        []report.Goal
}

// A Candidate is one way to perform the task of a row.
type Candidate struct {
	Name string
	Kind report.Kind
	// Open creates resources for all rounds, and returns a function that removes them. Open may be
	// nil.
	Open func() (end func(), err error)
	// Prepare prepares a single run of the task. For example, it creates a network namespace.
	Prepare func() (Task, error)
}

// A Task is a single run of the task of a Row. Only Do is timed.
type Task struct {
	// Do performs the task, and returns its cost.
	Do func() (Sample, error)
	// Count performs the task once instead of Do, and returns quantities whose measurement slows
	// the task; it may be nil.
	Count func() (Sample, error)
	// Check checks afterwards that the task was performed; nil if the error of Do suffices.
	Check func() error
	// Undo reverts the task; it may be nil.
	Undo func()
}

// A Sample is the cost of a run of a task.
type Sample map[report.Quantity]float64

// timed returns the task of calling do in this process. Its cost is the time.
func timed(do func() error) Task {
	return Task{Do: func() (Sample, error) {
		begin := time.Now()
		err := do()
		return Sample{report.Wall: time.Since(begin).Seconds()}, err
	}}
}
