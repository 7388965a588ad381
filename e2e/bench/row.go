package bench

import (
	"time"
)

// A Row is one task.
type Row struct {
	// Name says what is done, in few words.
	Name string
	// Contestants do it; the first one, which is ours, is what the others are compared with.
	Contestants []Contestant
	// Goals are what the first contestant shall reach against every peer.
	Goals []Goal
}

// A Contestant is a program, and the way in which it does the task.
type Contestant struct {
	Name string
	// Ours tells that it is no peer.
	Ours bool
	// Prepare makes the state in which the task is done once, such as a fresh network namespace.
	Prepare func() (*Task, error)
}

// A Task is what is to be done once. Only the command is measured.
type Task struct {
	Command *Command
	// Check tells afterwards whether the task was really done; nil if the command's exit status says enough.
	Check func() error
	// Undo undoes everything.
	Undo func()
}

// A Sample is what doing the task once took.
type Sample struct {
	// Wall is the time from start to end, CPU that of the process and those that it started.
	Wall, CPU time.Duration
}

// Cost is what a contestant's doing the task took.
type Cost struct {
	// Samples are those of all rounds, in their order.
	Samples []Sample
	// Memory is the resident memory, in bytes, of the largest of the processes at its largest.
	Memory int64
	// Executed is how many programs were executed besides the contestant's own.
	Executed int
}

// Wall is the median of the wall times; 0 without samples.
func (c *Cost) Wall() time.Duration {
	return c.quantile(0.5, func(s Sample) time.Duration { return s.Wall })
}

// Fastest is the least wall time: what disturbs the machine only adds.
func (c *Cost) Fastest() time.Duration {
	return c.quantile(0, func(s Sample) time.Duration { return s.Wall })
}

// CPU is the median of the CPU times.
func (c *Cost) CPU() time.Duration {
	return c.quantile(0.5, func(s Sample) time.Duration { return s.CPU })
}

// A Quantity is one of the numbers of a cost.
type Quantity struct {
	Name string
	Of   func(*Cost) float64
}

// The quantities that goals are about.
var (
	WallTime = Quantity{"wall time", func(c *Cost) float64 { return float64(c.Wall()) }}
	Memory   = Quantity{"memory", func(c *Cost) float64 { return float64(c.Memory) }}
)

// A Goal is the most that the first contestant shall take of what a peer takes.
type Goal struct {
	Quantity Quantity
	// AtMost is the part, such as 0.2.
	AtMost float64
}
