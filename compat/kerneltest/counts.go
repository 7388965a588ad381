package kerneltest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Counts counts pairs of a ruleset and a packet by the result of comparing the model with the
// kernel.
type Counts struct {
	// Rulesets counts the rulesets that were loaded, and Refused the rulesets that a program
	// rejected.
	Rulesets, Refused int
	// Agree counts the pairs for which the prediction is right.
	Agree int
	// UnknownMarks counts the pairs in Agree whose marks the model does not know.
	UnknownMarks int
	// Undecided counts the pairs for which the model has no prediction, by cause.
	Undecided map[string]int
	// NotCompared counts, by cause, the packets that could not be sent as described, or whose
	// sockets the model cannot represent. They are not in Pairs.
	NotCompared map[string]int
	// Ambiguous counts the pairs for which the prediction is wrong, but the order of some chains of
	// the ruleset is unknown.
	Ambiguous int
	// ByProgram contains the share of undecided pairs, by the programs of the ruleset: "nft",
	// "legacy+nft" and so on.
	ByProgram map[string]Share
	Failures  []Failure
}

// A Share is the share of undecided pairs.
type Share struct{ Undecided, Pairs int }

// Percent returns the share in percent.
func (s Share) Percent() float64 { return 100 * float64(s.Undecided) / float64(max(s.Pairs, 1)) }

// IPTables returns the share for the rulesets that consist only of tables of iptables-legacy and
// iptables-nft.
func (c *Counts) IPTables() Share {
	var sum Share
	for programs, share := range c.ByProgram {
		if !slices.Contains(strings.Split(programs, "+"), string(NFT)) {
			sum.Undecided += share.Undecided
			sum.Pairs += share.Pairs
		}
	}
	return sum
}

// Pairs returns the number of compared pairs.
func (c *Counts) Pairs() int {
	return c.Agree + sumCounts(c.Undecided) + c.Ambiguous + len(c.Failures)
}

// Add adds the counts of other.
func (c *Counts) Add(other Counts) {
	c.Rulesets += other.Rulesets
	c.Refused += other.Refused
	c.Agree += other.Agree
	c.UnknownMarks += other.UnknownMarks
	c.Ambiguous += other.Ambiguous
	c.Failures = append(c.Failures, other.Failures...)
	if c.ByProgram == nil {
		c.ByProgram = map[string]Share{}
	}
	for programs, share := range other.ByProgram {
		sum := c.ByProgram[programs]
		c.ByProgram[programs] = Share{sum.Undecided + share.Undecided, sum.Pairs + share.Pairs}
	}
	addCounts(&c.Undecided, other.Undecided)
	addCounts(&c.NotCompared, other.NotCompared)
}

// addCounts adds the counts by cause. It creates the map *to if it is nil.
func addCounts(to *map[string]int, from map[string]int) {
	if *to == nil {
		*to = map[string]int{}
	}
	for cause, count := range from {
		(*to)[cause] += count
	}
}

// sumCounts returns the sum of the counts by cause.
func sumCounts(counts map[string]int) (sum int) {
	for _, count := range counts {
		sum += count
	}
	return sum
}

// String returns the counts, most frequent causes first.
func (c *Counts) String() string {
	const maxCauses = 25
	undecided := Share{sumCounts(c.Undecided), c.Pairs()}
	var text strings.Builder
	fmt.Fprintf(&text,
		"%d rulesets (%d more were refused), %d pairs: %d agree (%d of them with unknown marks), "+
			"%d undecided (%.1f %%), %d of ambiguous order, %d differ\n",
		c.Rulesets, c.Refused, c.Pairs(), c.Agree, c.UnknownMarks, undecided.Undecided,
		undecided.Percent(), c.Ambiguous, len(c.Failures))
	for _, programs := range slices.Sorted(maps.Keys(c.ByProgram)) {
		share := c.ByProgram[programs]
		fmt.Fprintf(&text, "  of %s: %d pairs, %.1f %% undecided\n", programs, share.Pairs,
			share.Percent())
	}
	listCauses := func(title string, counts map[string]int) {
		causes := slices.Collect(maps.Keys(counts))
		slices.SortFunc(causes, func(a, b string) int {
			if counts[a] != counts[b] {
				return counts[b] - counts[a]
			}
			return strings.Compare(a, b)
		})
		for i, cause := range causes {
			if i == maxCauses {
				fmt.Fprintf(&text, "  and %d more causes\n", len(causes)-i)
				break
			}
			fmt.Fprintf(&text, "  %s: %5d %s\n", title, counts[cause], cause)
		}
	}
	listCauses("undecided", c.Undecided)
	listCauses("not compared", c.NotCompared)
	return text.String()
}
