// Package report renders what was measured: a page of tables, in Markdown, and plots, in SVG. It
// measures nothing itself, and equal results give equal bytes.
package report

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Results are what one run has measured.
type Results struct {
	Machine Machine `json:"machine"`
	// Programs are those that took part.
	Programs []Program `json:"programs"`
	// Rounds is how often each contestant did each task, where a row has no number of its own.
	Rounds int   `json:"rounds"`
	Rows   []Row `json:"rows"`
	// Pod describes the pod that simulations are about.
	Pod Pod `json:"pod"`
	// Soak is the last run of that test, which is a run of its own; nil for none.
	Soak *Soak `json:"soak,omitempty"`
}

// A Machine is where the run took place.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"` // in bytes
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// A Program is one that took part.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Size is that of the executable, in bytes; 0 where it does not matter.
	Size int64 `json:"size,omitempty"`
}

// A Pod is an injected pod as the API server has it.
type Pod struct {
	// Bytes is the size of its JSON.
	Bytes int `json:"bytes"`
}

// A Row is one task.
type Row struct {
	// ID names the row, and what is built on it.
	ID string `json:"id"`
	// Topic is what rows belong together by, and Name says what is done, in few words.
	Topic string `json:"topic"`
	Name  string `json:"name"`
	// Note says what has to be known to read the figures.
	Note string `json:"note,omitempty"`
	// Rounds is how often each contestant did it.
	Rounds  int     `json:"rounds,omitempty"`
	Entries []Entry `json:"entries,omitempty"`
	Goals   []Goal  `json:"goals,omitempty"`
	// LeftOut says what could not be measured here, and why.
	LeftOut []Reason `json:"leftOut,omitempty"`
	// Plotted is the quantity that a plot of the topic shows; empty for none.
	Plotted Quantity `json:"plotted,omitempty"`
}

// A Reason says why a contestant, or with no name a whole row, was left out.
type Reason struct {
	Name string `json:"name,omitempty"`
	Why  string `json:"why"`
}

// An Entry is what the task cost a contestant.
type Entry struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind,omitempty"`
	// Values are the quantities that were measured.
	Values map[Quantity]Summary `json:"values"`
}

// A Kind says what an entry is there for.
type Kind string

// The kinds.
const (
	Peer  Kind = ""
	Ours  Kind = "ours"
	Floor Kind = "floor" // what nobody can do better
)

// A Summary is the distribution of a quantity over the rounds.
type Summary struct {
	Median float64 `json:"median"`
	// First and Third are the quartiles, Least the smallest value.
	First float64 `json:"first"`
	Third float64 `json:"third"`
	Least float64 `json:"least"`
	// Samples is how many values there are.
	Samples int `json:"samples"`
}

// Summarise returns the distribution of the values; zero of none.
func Summarise(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }
	return Summary{Median: at(0.5), First: at(0.25), Third: at(0.75), Least: sorted[0], Samples: len(sorted)}
}

// Entry returns the row's entry of the name, or nil.
func (r *Row) Entry(name string) *Entry {
	i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Entries[i]
}

// Row returns the row of the id, or nil.
func (r *Results) Row(id string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// Decode reads results as [Results.Encode] writes them.
func Decode(text []byte) (Results, error) {
	var r Results
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("results: %w", err)
	}
	return r, nil
}

// Encode writes the results as JSON.
func (r *Results) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "\t")
	return append(text, '\n'), err
}
