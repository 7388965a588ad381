package report

import (
	"fmt"
	"math"
	"strings"
)

// A Goal is what an entry of ours shall reach.
type Goal struct {
	// Of is the entry.
	Of       string   `json:"of"`
	Quantity Quantity `json:"quantity"`
	// Than are the entries that it is compared with, each of which it must hold against; nil for
	// all peers. A name that is not there, since it was left out, does not count.
	Than []string `json:"than,omitempty"`
	// Factor is what the entry may have at the most of what the others have, or with Rate at the
	// least.
	Factor float64 `json:"factor,omitempty"`
	// Limit is the most that it may have in any case; 0 for no limit, and Zero for none at all.
	Limit float64 `json:"limit,omitempty"`
	Zero  bool    `json:"zero,omitempty"`
}

// A verdict tells how an entry stands to a goal.
type verdict struct {
	// wanted says what the goal is, and got what the entry has reached.
	wanted, got string
	met         bool
	// value is the entry's, against the one of the other that it does worst against, if it is
	// compared with any.
	value   Summary
	against *Entry
	ratio   float64
}

// judge returns how the row's entry stands to the goal, and false if what it takes was left out.
func (g Goal) judge(r *Row) (verdict, bool) {
	entry := r.Entry(g.Of)
	if entry == nil {
		return verdict{}, false
	}
	v := verdict{value: entry.Values[g.Quantity]}
	own := v.value.Median
	switch {
	case g.Zero:
		v.wanted, v.got, v.met = "none", g.Quantity.format(own), own == 0
		return v, true
	case g.Limit > 0:
		v.wanted, v.got, v.met = "≤ "+g.Quantity.format(g.Limit), g.Quantity.format(own), own <= g.Limit
		return v, true
	}
	for i := range r.Entries {
		other := &r.Entries[i]
		if !g.compares(other) || other.Values[g.Quantity].Median == 0 {
			continue
		}
		ratio := own / other.Values[g.Quantity].Median
		if v.against == nil || g.worse(ratio, v.ratio) {
			v.against, v.ratio = other, ratio
		}
	}
	if v.against == nil {
		return v, false
	}
	v.wanted, v.got = g.sign()+" "+factor(g.Factor), three(v.ratio)
	v.met = !g.worse(v.ratio, g.Factor)
	return v, true
}

// compares reports whether the goal is about the other entry.
func (g Goal) compares(other *Entry) bool {
	if g.Than == nil {
		return other.Kind == Peer
	}
	for _, name := range g.Than {
		if name == other.Name {
			return true
		}
	}
	return false
}

// worse reports whether a ratio is worse than another: more of a cost, less of a rate. What rounds
// to the same is not.
func (g Goal) worse(a, b float64) bool {
	if math.Round(a*1000) == math.Round(b*1000) {
		return false
	}
	return (a > b) != (g.Quantity == Rate)
}

func (g Goal) sign() string {
	if g.Quantity == Rate {
		return "≥"
	}
	return "≤"
}

// factor writes small ones as fractions, as people think of them.
func factor(f float64) string {
	if inverse := 1 / f; f < 0.6 && math.Abs(inverse-math.Round(inverse)) < 1e-9 {
		return fmt.Sprintf("1/%.0f", inverse)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
}
