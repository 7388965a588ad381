package report

import (
	"fmt"
	"math"
	"strings"
)

// A Goal is a goal for an entry of Sluice.
type Goal struct {
	// Of is the name of the entry.
	Of       string   `json:"of"`
	Quantity Quantity `json:"quantity"`
	// Than lists the entries to compare with; nil means all peers. The goal must be met against
	// each of them. Entries that were omitted from the row are ignored.
	Than []string `json:"than,omitempty"`
	// Factor is the maximum ratio to the other entry; for Rate, the minimum.
	Factor float64 `json:"factor,omitempty"`
	// Limit is the maximum value; 0 for no limit. Zero requires the value 0.
	Limit float64 `json:"limit,omitempty"`
	Zero  bool    `json:"zero,omitempty"`
}

// A verdict is the result for a goal.
type verdict struct {
	// expected describes the goal; got is the entry's formatted value.
	expected, got string
	isMet         bool
	// value is the entry's value. If the goal compares entries, against is the entry with the worst
	// ratio.
	value   Summary
	against *Entry
	ratio   float64
}

// check returns the result of the row's entry, or false if a required entry is missing.
func (g Goal) check(r *Row) (verdict, bool) {
	entry := r.Entry(g.Of)
	if entry == nil {
		return verdict{}, false
	}
	v := verdict{value: entry.Values[g.Quantity]}
	own := v.value.Median
	switch {
	case g.Zero:
		v.expected, v.got, v.isMet = "none", g.Quantity.format(own), own == 0
		return v, true
	case g.Limit > 0:
		v.expected, v.got, v.isMet = "≤ "+g.Quantity.format(g.Limit), g.Quantity.format(own),
			own <= g.Limit
		return v, true
	}
	for i := range r.Entries {
		other := &r.Entries[i]
		if !g.compares(other) || other.Values[g.Quantity].Median == 0 {
			continue
		}
		ratio := own / other.Values[g.Quantity].Median
		if v.against == nil || g.isWorse(ratio, v.ratio) {
			v.against, v.ratio = other, ratio
		}
	}
	if v.against == nil {
		return v, false
	}
	v.expected, v.got = g.sign()+" "+factor(g.Factor), threeDigits(v.ratio)
	v.isMet = !g.isWorse(v.ratio, g.Factor)
	return v, true
}

// compares reports whether the goal refers to the other entry.
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

// isWorse reports whether ratio a is worse than b: larger for a cost, smaller for a rate. Ratios
// that are formatted alike are equal.
func (g Goal) isWorse(a, b float64) bool {
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

// factor formats a ratio; small ones as fractions.
func factor(f float64) string {
	if inverse := 1 / f; f < 0.6 && math.Abs(inverse-math.Round(inverse)) < 1e-9 {
		return fmt.Sprintf("1/%.0f", inverse)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", f), "0"), ".")
}
