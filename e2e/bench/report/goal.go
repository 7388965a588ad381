package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// A Goal is a requirement on a quantity of an entry of Sluice.
type Goal struct {
	// Entry is the name of the entry.
	Entry    string   `json:"of"`
	Quantity Quantity `json:"quantity"`
	// Others lists the entries to compare with; nil means all peers. The goal must be met against
	// each of them, except those that are missing in the row or have the value 0.
	Others []string `json:"than,omitempty"`
	// Factor is the maximum ratio to the other entry. For Rate, it is the minimum ratio.
	Factor float64 `json:"factor,omitempty"`
	// Limit is the maximum value; 0 for no limit. Zero requires the value 0.
	Limit float64 `json:"limit,omitempty"`
	Zero  bool    `json:"zero,omitempty"`
}

// A verdict is the result for a goal.
type verdict struct {
	Goal
	// Expected describes the goal. Actual is the formatted ratio, or the entry's formatted value if
	// the goal does not compare entries.
	Expected, Actual string
	isMet            bool
	// value is the entry's value.
	value float64
	// Worst is the compared entry with the worst ratio; nil if the goal does not compare entries.
	Worst *Entry
}

// verdicts returns the verdicts on the goals of a row, except goals that cannot be judged.
func (r *Row) verdicts() []verdict {
	var verdicts []verdict
	for _, g := range r.Goals {
		if v, isJudged := g.judge(r); isJudged {
			verdicts = append(verdicts, v)
		}
	}
	return verdicts
}

// judge returns the verdict on the goal. It returns false if the row lacks g.Entry, or if it has no
// entry to compare g.Entry with.
func (g Goal) judge(r *Row) (verdict, bool) {
	entry := r.Entry(g.Entry)
	if entry == nil {
		return verdict{}, false
	}
	value := entry.Values[g.Quantity].Median
	v := verdict{Goal: g, value: value, Actual: g.Quantity.format(value)}
	switch {
	case g.Zero:
		v.Expected, v.isMet = "= 0", value == 0
		return v, true
	case g.Limit > 0:
		v.Expected, v.isMet = "≤ "+g.Quantity.format(g.Limit), value <= g.Limit
		return v, true
	}
	var worstRatio float64
	for i := range r.Entries {
		other := &r.Entries[i]
		if !g.compares(other) || other.Values[g.Quantity].Median == 0 {
			continue
		}
		ratio := value / other.Values[g.Quantity].Median
		if v.Worst == nil || g.isWorse(ratio, worstRatio) {
			v.Worst, worstRatio = other, ratio
		}
	}
	if v.Worst == nil {
		return v, false
	}
	v.Expected, v.Actual = g.relation()+" "+formatRatio(g.Factor), threeDigits(worstRatio)
	v.isMet = !g.isWorse(worstRatio, g.Factor)
	return v, true
}

// FormattedValue returns the formatted value of the entry.
func (v verdict) FormattedValue() string {
	if v.Quantity == Rate {
		return v.Quantity.format(v.value) + " per second"
	}
	return v.Quantity.format(v.value)
}

// Verdict returns "met", or "missed" in bold type.
func (v verdict) Verdict() string {
	if v.isMet {
		return "met"
	}
	return "**missed**"
}

// compares reports whether the goal compares with the other entry.
func (g Goal) compares(other *Entry) bool {
	if g.Others == nil {
		return other.Kind == Peer
	}
	return slices.Contains(g.Others, other.Name)
}

// isWorse reports whether ratio a is worse than b: larger for a cost, smaller for a rate. It rounds
// the ratios to thousandths before it compares them.
func (g Goal) isWorse(a, b float64) bool {
	if math.Round(a*1000) == math.Round(b*1000) {
		return false
	}
	return (a > b) != (g.Quantity == Rate)
}

// relation returns the relation that the goal requires between the ratio and Factor.
func (g Goal) relation() string {
	if g.Quantity == Rate {
		return "≥"
	}
	return "≤"
}

// formatRatio formats a ratio. The inverse of an integer ≥ 2 is formatted as a fraction, such
// as 1/10.
func formatRatio(ratio float64) string {
	const roundingError = 1e-9
	inverse := 1 / ratio
	if inverse > 1.5 && math.Abs(inverse-math.Round(inverse)) < roundingError {
		return fmt.Sprintf("1/%.0f", inverse)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", ratio), "0"), ".")
}
