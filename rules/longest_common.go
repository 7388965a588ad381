package rules

import "slices"

// commonSubsequence marks the rules of two lists that belong to a common subsequence.
type commonSubsequence struct{ want, got []bool }

// add marks a rule by its positions in both lists.
func (c commonSubsequence) add(want, got int) { c.want[want], c.got[got] = true, true }

// If there are at most maxPairs pairs of equal rules, all pairs are tried; they take about 3 MB. If
// there are more, the nth occurrence of a rule in one list is paired only with the occurrences
// n-maxDistance to n+maxDistance in the other list.
const (
	maxPairs    = 1 << 17
	maxDistance = 4
)

// commonRules returns a common subsequence of two lists of rules, which are given by their numbers
// (see numbering). It is a longest one, unless the lists have many repetitions.
func commonRules(want, got []int) commonSubsequence {
	kept := commonSubsequence{make([]bool, len(want)), make([]bool, len(got))}
	prefix, suffix := 0, 0
	for ; prefix < min(len(want), len(got)) && want[prefix] == got[prefix]; prefix++ {
		kept.add(prefix, prefix)
	}
	for ; suffix < min(len(want), len(got))-prefix &&
		want[len(want)-1-suffix] == got[len(got)-1-suffix]; suffix++ {
		kept.add(len(want)-1-suffix, len(got)-1-suffix)
	}
	want, got = want[prefix:len(want)-suffix], got[prefix:len(got)-suffix]
	positions := map[int][]int{} // in got, by the number of the rule
	for j, number := range got {
		positions[number] = append(positions[number], j)
	}
	pairs, distance := 0, maxDistance
	for _, number := range want {
		pairs += len(positions[number])
	}
	if pairs <= maxPairs {
		distance = max(len(want), len(got))
	}
	for p := huntSzymanski(want, positions, distance); p != nil; p = p.previous {
		kept.add(prefix+p.want, prefix+p.got)
	}
	return kept
}

// A pair contains the positions of a rule in both lists, and the previous pair of the longest
// common subsequence that ends with this pair.
type pair struct {
	want, got int
	previous  *pair
}

// huntSzymanski returns the last pair of a common subsequence, or nil if it is empty (Hunt and
// Szymanski, A Fast Algorithm for Computing Longest Common Subsequences, 1977). positions contains
// the positions of each number in the other list. The subsequence may be shorter than a longest one
// if a number occurs more than distance+1 times in a list. The time is O(n log n) for n pairs that
// are tried.
func huntSzymanski(want []int, positions map[int][]int, distance int) *pair {
	// ends[k] is the last pair of a common subsequence of length k+1: the subsequence that ends
	// first in the other list.
	var ends []*pair
	occurrences := map[int]int{} // of each number in want so far
	for i, number := range want {
		candidates := positions[number]
		earlier := occurrences[number]
		occurrences[number]++
		// For the nth occurrence in want, try only occurrences near the nth in the other list.
		first := min(max(0, earlier-distance), len(candidates))
		end := min(earlier+distance+1, len(candidates))
		candidates = candidates[first:end]
		// In descending order, so that no pair precedes another pair with the same i.
		for _, j := range slices.Backward(candidates) {
			k, _ := slices.BinarySearchFunc(ends, j, func(p *pair, j int) int { return p.got - j })
			p := &pair{want: i, got: j}
			if k > 0 {
				p.previous = ends[k-1]
			}
			if k == len(ends) {
				ends = append(ends, nil)
			}
			ends[k] = p
		}
	}
	if len(ends) == 0 {
		return nil
	}
	return ends[len(ends)-1]
}
