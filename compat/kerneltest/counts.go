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
	Rulesets, Refused int
	Agree             int
	// UnknownMarks counts the pairs in Agree whose marks the model does not know.
	UnknownMarks int
	Undecided    map[string]int // by cause
	Unsendable   map[string]int // by cause
	// Ambiguous counts pairs for which the prediction is wrong, but the order of chains of the
	// ruleset is unknown.
	Ambiguous int
	// ByProgram contains the numbers of pairs and of undecided pairs, by the programs of the
	// ruleset.
	ByProgram map[string]Share
	Failures  []Failure
}

// A Share is the share of undecided pairs.
type Share struct{ Undecided, Pairs int }

// Percent returns the share in percent.
func (s Share) Percent() float64 { return 100 * float64(s.Undecided) / float64(max(s.Pairs, 1)) }

// IPTables returns the share for rulesets of iptables only, of either variant.
func (t *Counts) IPTables() Share {
	var sum Share
	for programs, share := range t.ByProgram {
		if !slices.Contains(strings.Split(programs, "+"), string(NFT)) {
			sum.Undecided += share.Undecided
			sum.Pairs += share.Pairs
		}
	}
	return sum
}

// Pairs is the number of packets that were sent.
func (t *Counts) Pairs() int { return t.Agree + sumCounts(t.Undecided) + t.Ambiguous + len(t.Failures) }

// Add adds the counts of other.
func (t *Counts) Add(other Counts) {
	t.Rulesets += other.Rulesets
	t.Refused += other.Refused
	t.Agree += other.Agree
	t.UnknownMarks += other.UnknownMarks
	t.Ambiguous += other.Ambiguous
	t.Failures = append(t.Failures, other.Failures...)
	if t.ByProgram == nil {
		t.ByProgram = map[string]Share{}
	}
	for programs, share := range other.ByProgram {
		sum := t.ByProgram[programs]
		t.ByProgram[programs] = Share{sum.Undecided + share.Undecided, sum.Pairs + share.Pairs}
	}
	addCounts(&t.Undecided, other.Undecided)
	addCounts(&t.Unsendable, other.Unsendable)
}

// addCounts adds the counts by cause. It creates the map if it is nil.
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
func (t *Counts) String() string {
	var text strings.Builder
	fmt.Fprintf(&text,
		"%d rulesets (%d refused), %d pairs: %d agree (%d without their marks), "+
			"%d undecided (%.1f %%), %d of ambiguous order, %d differ\n",
		t.Rulesets, t.Refused, t.Pairs(), t.Agree, t.UnknownMarks, sumCounts(t.Undecided),
		100*float64(sumCounts(t.Undecided))/float64(max(t.Pairs(), 1)),
		t.Ambiguous, len(t.Failures))
	for _, programs := range slices.Sorted(maps.Keys(t.ByProgram)) {
		share := t.ByProgram[programs]
		fmt.Fprintf(&text, "  of %s: %d pairs, %.1f %% undecided\n", programs, share.Pairs,
			share.Percent())
	}
	list := func(title string, counts map[string]int) {
		causes := slices.Collect(maps.Keys(counts))
		slices.SortFunc(causes, func(a, b string) int {
			if counts[a] != counts[b] {
				return counts[b] - counts[a]
			}
			return strings.Compare(a, b)
		})
		for i, cause := range causes {
			if i == 25 {
				fmt.Fprintf(&text, "  and %d more causes\n", len(causes)-i)
				break
			}
			fmt.Fprintf(&text, "  %s: %5d %s\n", title, counts[cause], cause)
		}
	}
	list("undecided", t.Undecided)
	list("not sent", t.Unsendable)
	return text.String()
}
