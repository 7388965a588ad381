// Package report renders measured results: a page with tables in Markdown, and plots in SVG. Equal
// results give equal bytes.
package report

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Results are the results of a run.
type Results struct {
	Machine Machine `json:"machine"`
	// Programs are the measured programs.
	Programs []Program `json:"programs"`
	// Rounds is the number of rounds of a row whose Rounds is 0.
	Rounds int   `json:"rounds"`
	Rows   []Row `json:"rows"`
	// Pod is the pod whose size the extrapolation to nodes and clusters uses.
	Pod Pod `json:"pod"`
	// Soak is the result of the last soak test, which runs separately; nil if there is none.
	Soak *Soak `json:"soak,omitempty"`
	// Scale is the result of the last simulation of a large cluster; nil if there is none.
	Scale *Scale `json:"scale,omitempty"`
}

// A Machine describes the machine of a run.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"` // in bytes
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// A Program is a measured program.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Size is the size of the executable in bytes; 0 if it is not relevant.
	Size int64 `json:"size,omitempty"`
}

// A Pod is an injected pod in the API server.
type Pod struct {
	// Bytes is the size of its JSON.
	Bytes int `json:"bytes"`
}

// A Row contains the results of a task.
type Row struct {
	// ID identifies the row.
	ID string `json:"id"`
	// Topic is the title of a section, which may contain several rows. Name describes the task.
	Topic string `json:"topic"`
	Name  string `json:"name"`
	// Note explains how to interpret the figures.
	Note string `json:"note,omitempty"`
	// Rounds is the number of rounds of this row; 0 for Results.Rounds.
	Rounds  int     `json:"rounds,omitempty"`
	Entries []Entry `json:"entries,omitempty"`
	Goals   []Goal  `json:"goals,omitempty"`
	// Omitted lists the omitted candidates, with the reasons.
	Omitted []Omission `json:"leftOut,omitempty"`
	// Plotted is the quantity in the topic's plot; empty for none.
	Plotted Quantity `json:"plotted,omitempty"`
}

// An Omission is a candidate that was omitted from the results. If Name is empty, the whole row was
// omitted. Text is the reason.
type Omission struct {
	Name string `json:"name,omitempty"`
	Text string `json:"why"`
}

// An Entry is the result of a candidate.
type Entry struct {
	Name string `json:"name"`
	Kind Kind   `json:"kind,omitempty"`
	// Values are the measured quantities.
	Values map[Quantity]Summary `json:"values"`
}

// A Kind is the role of an entry.
type Kind string

const (
	// Peer marks a program of another project.
	Peer Kind = ""
	// Sluice marks a program or the library of Sluice.
	Sluice Kind = "ours"
	// Floor marks a program that does only the minimum that the task requires. It has the lowest
	// cost or the highest rate.
	Floor Kind = "floor"
)

// A Summary is the distribution of a quantity over the rounds.
type Summary struct {
	Median        float64 `json:"median"`
	FirstQuartile float64 `json:"first"`
	ThirdQuartile float64 `json:"third"`
	Minimum       float64 `json:"least"`
	// Samples is the number of values.
	Samples int `json:"samples"`
}

// Summarize returns the distribution of the values; the zero value if there are none.
func Summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	quantile := func(q float64) float64 {
		return sorted[int(math.Round(q*float64(len(sorted)-1)))]
	}
	return Summary{
		Median: quantile(0.5), FirstQuartile: quantile(0.25), ThirdQuartile: quantile(0.75),
		Minimum: sorted[0], Samples: len(sorted),
	}
}

// Entry returns the row's entry with the name, or nil.
func (r *Row) Entry(name string) *Entry {
	i := slices.IndexFunc(r.Entries, func(e Entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &r.Entries[i]
}

// Row returns the row with the ID, or nil.
func (r *Results) Row(id string) *Row {
	i := slices.IndexFunc(r.Rows, func(row Row) bool { return row.ID == id })
	if i < 0 {
		return nil
	}
	return &r.Rows[i]
}

// Decode decodes the output of [Results.Encode].
func Decode(text []byte) (Results, error) {
	var r Results
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("decode the results: %w", err)
	}
	return r, nil
}

// Encode encodes the results as JSON.
func (r *Results) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(r, "", "\t")
	return append(text, '\n'), err
}
