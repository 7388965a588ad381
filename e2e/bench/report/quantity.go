package report

import (
	"fmt"
	"slices"
	"strconv"
)

// A Quantity is the kind of a measured value.
type Quantity string

// The quantities, and their units.
const (
	Wall     Quantity = "wall"     // time from start to end, in seconds
	CPU      Quantity = "cpu"      // CPU time of the processes and their children, in seconds
	Memory   Quantity = "memory"   // maximum resident memory of the largest process, in bytes
	Executed Quantity = "executed" // number of executed programs besides the candidate's own
	Lost     Quantity = "lost"     // number of lost packets
	Gap      Quantity = "gap"      // longest time without an answer, in seconds
	Rate     Quantity = "rate"     // connections or packets per second; larger is better
	Kept     Quantity = "kept"     // growth of the heap in use during the task, in bytes
	Share    Quantity = "share"    // CPU time as a share of one core
)

// quantities contains the properties of the quantities, in the order of the columns.
var quantities = []properties{
	{Wall, "wall time", duration, true},
	{CPU, "CPU time", duration, true},
	{Rate, "rate per second", count, true},
	{Memory, "memory", size[float64], true},
	{Executed, "programs executed", count, false},
	{Lost, "packets lost", count, false},
	{Gap, "longest gap", duration, false},
	{Kept, "memory kept", size[float64], false},
	{Share, "CPU, share of one core", percent, true},
}

// title returns the heading of the quantity's column.
func (q Quantity) title() string { return q.properties().title }

// format formats a value with its unit.
func (q Quantity) format(value float64) string { return q.properties().format(value) }

// properties describe how a quantity is presented.
type properties struct {
	Quantity
	title  string
	format func(float64) string
	// hasRatios is true if ratios of the quantity are meaningful.
	hasRatios bool
}

// properties returns the properties of the quantity. Values of an unknown quantity have no unit.
func (q Quantity) properties() properties {
	i := slices.IndexFunc(quantities, func(p properties) bool { return p.Quantity == q })
	if i < 0 {
		return properties{Quantity: q, title: string(q), format: threeDigits}
	}
	return quantities[i]
}

// duration formats seconds.
func duration(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 1e-6:
		return threeDigits(s*1e9) + " ns"
	case s < 1e-3:
		return threeDigits(s*1e6) + " µs"
	case s < 1:
		return threeDigits(s*1e3) + " ms"
	}
	return threeDigits(s) + " s"
}

// size formats bytes.
func size[N int64 | float64](bytes N) string {
	value := float64(bytes)
	for _, unit := range []string{"B", "kB", "MB", "GB"} {
		if value < 1e3 {
			return threeDigits(value) + " " + unit
		}
		value /= 1e3
	}
	return threeDigits(value) + " TB"
}

// count formats a number without decimals.
func count(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

// percent formats a fraction as a percentage.
func percent(fraction float64) string { return threeDigits(fraction*100) + " %" }

// threeDigits formats a number with three significant digits if it is between 1 and 100, with two
// decimals if it is smaller, and as an integer if it is larger.
func threeDigits(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x >= 99.95 || x <= -99.95:
		return fmt.Sprintf("%.0f", x)
	case x >= 9.995 || x <= -9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
