package rules

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kept returns the elements of a list that are kept.
func kept(list []int, keep []bool) []int {
	var numbers []int
	for i, n := range list {
		if keep[i] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// TestLongestCommonOfLongLists compares the algorithm for long lists with the exhaustive one for
// short lists.
func TestLongestCommonOfLongLists(t *testing.T) {
	for _, row := range []struct {
		name string
		// alphabet is the number of different values, and longest the maximum length of a list.
		alphabet, longest int
		exact             bool
	}{
		{"few repeated values", 60, 20, true},
		{"no value more frequent than the number of tried candidates", 3, maxCandidates + 1, true},
		{"many repetitions", 3, 60, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				numbers := rapid.SliceOfN(rapid.IntRange(1, row.alphabet), 0, row.longest)
				want, got := numbers.Draw(t, "want"), numbers.Draw(t, "got")
				best, found := longestCommon(want, got), huntSzymanski(want, got)
				common := kept(want, found.want)
				if !slices.Equal(common, kept(got, found.got)) {
					t.Fatalf("the subsequence of want is %v, but the subsequence of got is %v", common,
						kept(got, found.got))
				}
				exact := row.exact && !slices.ContainsFunc(want, func(n int) bool {
					return occurrences(want, n) > maxCandidates || occurrences(got, n) > maxCandidates
				})
				if longest := len(kept(want, best.want)); len(common) > longest ||
					exact && len(common) < longest {
					t.Fatalf("the common subsequence has length %d, the longest one %d", len(common),
						longest)
				}
			})
		})
	}
}

func occurrences(list []int, number int) int {
	n := 0
	for _, other := range list {
		if other == number {
			n++
		}
	}
	return n
}
