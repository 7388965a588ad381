package bench

import (
	"fmt"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// Measure lets the contestants of a row do its task in turn, in so many rounds of which each begins
// with another one. The first time of each does not count: it warms caches, and is where memory and
// executed programs are counted. A contestant that fails is left out of the result, which says why.
func Measure(row Row, rounds int) report.Row {
	result := report.Row{ID: row.ID, Topic: row.Topic, Name: row.Name, Note: row.Note, Plotted: row.Plotted, Goals: row.Goals}
	if row.Share > 0 {
		rounds = max(int(float64(rounds)*row.Share), 1)
		result.Rounds = rounds
	}
	runs := make([]*run, len(row.Contestants))
	for i := range row.Contestants {
		runs[i] = start(&row.Contestants[i])
	}
	for round := range rounds {
		for i := range runs {
			runs[(i+round)%len(runs)].round()
		}
	}
	for _, r := range runs {
		r.end()
		if r.err != nil {
			result.LeftOut = append(result.LeftOut, report.Reason{Name: r.Name, Why: r.err.Error()})
			continue
		}
		result.Entries = append(result.Entries, r.entry())
	}
	return result
}

// A run is a contestant in a row.
type run struct {
	*Contestant
	counted Sample
	samples map[report.Quantity][]float64
	end     func()
	// err is why it takes no part any more.
	err error
}

// start opens the contestant and lets it do the task the time that does not count.
func start(c *Contestant) *run {
	r := &run{Contestant: c, samples: map[report.Quantity][]float64{}, end: func() {}}
	if c.Open != nil {
		end, err := c.Open()
		if err != nil {
			r.err = err
			return r
		}
		r.end = end
	}
	r.counted, r.err = c.once(func(t Task) (Sample, error) {
		if t.Count == nil {
			_, err := t.Do()
			return nil, err
		}
		return t.Count()
	})
	return r
}

// round lets the contestant do the task once more.
func (r *run) round() {
	if r.err != nil {
		return
	}
	s, err := r.once(func(t Task) (Sample, error) { return t.Do() })
	if err != nil {
		r.err = fmt.Errorf("after %d rounds: %w", len(r.samples[report.Wall]), err)
		return
	}
	for q, value := range s {
		r.samples[q] = append(r.samples[q], value)
	}
}

// entry is what all rounds took.
func (r *run) entry() report.Entry {
	e := report.Entry{Name: r.Name, Kind: r.Kind, Values: map[report.Quantity]report.Summary{}}
	for q, value := range r.counted {
		e.Values[q] = report.Summarise([]float64{value})
	}
	for q, values := range r.samples {
		e.Values[q] = report.Summarise(values)
	}
	return e
}

// once prepares the task, does it, checks that it was done, and undoes it.
func (c *Contestant) once(do func(Task) (Sample, error)) (Sample, error) {
	task, err := c.Prepare()
	if err != nil {
		return nil, err
	}
	if task.Undo != nil {
		defer task.Undo()
	}
	s, err := do(task)
	if err == nil && task.Check != nil {
		err = task.Check()
	}
	return s, err
}
