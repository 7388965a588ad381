package bench

import (
	"fmt"

	"github.com/sluice-mesh/sluice/e2e/bench/report"
)

// Measure runs the task of a row with its candidates in turn. Each round starts with the next
// candidate. The first run of each candidate, before the rounds, is not timed: it warms caches, and
// counts memory and executed programs. A candidate that fails has no entry in the result; it is
// listed among the omitted candidates, with the reason.
func Measure(row Row, rounds int) report.Row {
	result := report.Row{
		ID: row.ID, Topic: row.Topic, Name: row.Name, Note: row.Note, Plotted: row.Plotted,
		Goals: row.Goals,
	}
	if row.RoundsFactor > 0 {
		rounds = max(int(float64(rounds)*row.RoundsFactor), 1)
		result.Rounds = rounds
	}
	runs := make([]*candidateRun, len(row.Candidates))
	for i := range row.Candidates {
		runs[i] = openCandidate(&row.Candidates[i])
	}
	for round := range rounds {
		for i := range runs {
			runs[(i+round)%len(runs)].runRound()
		}
	}
	for _, r := range runs {
		r.end()
		if r.err != nil {
			result.Omitted = append(result.Omitted,
				report.Omission{Name: r.Name, Text: r.err.Error()})
			continue
		}
		result.Entries = append(result.Entries, r.entry())
	}
	return result
}

// A candidateRun is a candidate of a row with its measured values.
type candidateRun struct {
	*Candidate
	counted Sample // of the first run, which is not timed
	samples map[report.Quantity][]float64
	rounds  int    // number of measured runs
	end     func() // removes the resources that Candidate.Open created
	// err is the reason for omitting the candidate.
	err error
}

// openCandidate opens the candidate, and runs its task once without timing it.
func openCandidate(c *Candidate) *candidateRun {
	r := &candidateRun{Candidate: c, samples: map[report.Quantity][]float64{}, end: func() {}}
	if c.Open != nil {
		end, err := c.Open()
		if err != nil {
			r.err = err
			return r
		}
		r.end = end
	}
	r.counted, r.err = c.runOnce(func(t Task) (Sample, error) {
		if t.Count == nil {
			_, err := t.Do()
			return nil, err
		}
		return t.Count()
	})
	return r
}

// runRound runs and measures the task once, unless an earlier run has failed.
func (r *candidateRun) runRound() {
	if r.err != nil {
		return
	}
	s, err := r.runOnce(func(t Task) (Sample, error) { return t.Do() })
	if err != nil {
		r.err = fmt.Errorf("after %d rounds: %w", r.rounds, err)
		return
	}
	r.rounds++
	for q, value := range s {
		r.samples[q] = append(r.samples[q], value)
	}
}

// entry returns the result of all rounds.
func (r *candidateRun) entry() report.Entry {
	e := report.Entry{Name: r.Name, Kind: r.Kind, Values: map[report.Quantity]report.Summary{}}
	for q, value := range r.counted {
		e.Values[q] = report.Summarize([]float64{value})
	}
	for q, values := range r.samples {
		e.Values[q] = report.Summarize(values)
	}
	return e
}

// runOnce prepares a task, calls do with the task, checks that the task was performed, and undoes
// the task.
func (c *Candidate) runOnce(do func(Task) (Sample, error)) (Sample, error) {
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
