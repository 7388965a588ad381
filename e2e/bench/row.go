package bench

import (
	"time"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// A Row is one task.
type Row struct {
	// ID, Topic, Name, Note and Plotted are those of the result.
	ID, Topic, Name, Note string
	Plotted               report.Quantity
	// Share says how many of the run's rounds there are, for tasks that take little time or much; 0
	// is all.
	Share       float64
	Contestants []Contestant
	Goals       []report.Goal
}

// A Contestant is a program, and the way in which it does the task.
type Contestant struct {
	Name string
	Kind report.Kind
	// Open makes what lasts over all rounds, and returns what ends that; nil if there is nothing.
	Open func() (end func(), err error)
	// Prepare makes the state in which the task is done once, such as a fresh network namespace.
	Prepare func() (Task, error)
}

// A Task is what is to be done once. Only Do is measured.
type Task struct {
	// Do does it, and returns what that took.
	Do func() (Sample, error)
	// Count does it instead of Do, once, and returns what cannot be counted without making it
	// slow; nil if there is nothing.
	Count func() (Sample, error)
	// Check tells afterwards whether the task was really done; nil if Do's error says enough.
	Check func() error
	// Undo undoes everything; nil if there is nothing.
	Undo func()
}

// A Sample is what doing a task once took.
type Sample map[report.Quantity]float64

// timed is how long a function takes, for tasks in this process.
func timed(do func() error) func() (Sample, error) {
	return func() (Sample, error) {
		begin := time.Now()
		err := do()
		return Sample{report.Wall: time.Since(begin).Seconds()}, err
	}
}
