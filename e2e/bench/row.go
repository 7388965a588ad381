package bench

import (
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// A Row is one task.
type Row struct {
	// ID, Topic, Name, Note and Plotted are copied to the result.
	ID, Topic, Name, Note string
	Plotted               report.Quantity
	// Share is the fraction of the run's rounds, for tasks that are fast or slow; 0 means all.
	Share      float64
	Candidates []Candidate
	Goals      []report.Goal
}

// A Candidate is a program that performs the task in some way.
type Candidate struct {
	Name string
	Kind report.Kind
	// Open creates what is needed in all rounds, and returns a function that removes it; it may be
	// nil.
	Open func() (end func(), err error)
	// Prepare prepares a single run of the task, such as a new network namespace.
	Prepare func() (Task, error)
}

// A Task is a single run of a task. Only Do is measured.
type Task struct {
	// Do performs the task, and returns its cost.
	Do func() (Sample, error)
	// Count performs the task instead of Do, once, and returns quantities whose measurement slows
	// it down; it may be nil.
	Count func() (Sample, error)
	// Check checks afterwards that the task was performed; nil if the error of Do suffices.
	Check func() error
	// Undo reverts the task; it may be nil.
	Undo func()
}

// A Sample is the cost of a run of a task.
type Sample map[report.Quantity]float64

// timed returns a function that measures the time of a function in this process.
func timed(do func() error) func() (Sample, error) {
	return func() (Sample, error) {
		begin := time.Now()
		err := do()
		return Sample{report.Wall: time.Since(begin).Seconds()}, err
	}
}
