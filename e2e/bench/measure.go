package bench

import (
	"fmt"
	"slices"
	"time"
)

// Measure lets the contestants of a row do its task in turn, in so many rounds of which each begins with another one. The first time
// of each does not count: it warms caches, and is where memory and executed programs are counted. An error says why the row cannot
// be measured, and which contestant failed.
func Measure(row Row, rounds int) ([]Cost, error) {
	costs := make([]Cost, len(row.Contestants))
	for i, c := range row.Contestants {
		err := c.once(func(command *Command) error {
			f, err := command.traced()
			costs[i].Memory, costs[i].Executed = f.memory, f.executed
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", row.Name, c.Name, err)
		}
	}
	for round := range rounds {
		for i := range row.Contestants {
			i := (i + round) % len(row.Contestants)
			c := row.Contestants[i]
			err := c.once(func(command *Command) error {
				s, err := command.run()
				costs[i].Samples = append(costs[i].Samples, s)
				return err
			})
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", row.Name, c.Name, err)
			}
		}
	}
	return costs, nil
}

// once prepares the task, does it, checks that it was done, and undoes it.
func (c *Contestant) once(do func(*Command) error) error {
	task, err := c.Prepare()
	if err != nil {
		return err
	}
	defer task.Undo()
	if err = do(task.Command); err == nil && task.Check != nil {
		err = task.Check()
	}
	return err
}

// quantile returns the q-th part of the samples' values in ascending order: 0 the least, 0.5 the median.
func (c *Cost) quantile(q float64, of func(Sample) time.Duration) time.Duration {
	if len(c.Samples) == 0 {
		return 0
	}
	values := make([]time.Duration, len(c.Samples))
	for i, s := range c.Samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	return values[int(q*float64(len(values)-1)+0.5)]
}
