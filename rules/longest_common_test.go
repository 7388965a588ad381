package rules

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kept returns the numbers of a list that are kept.
func kept(list []int, keep []bool) []int {
	var numbers []int
	for i, n := range list {
		if keep[i] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// TestLongListsHaveAsMuchInCommon compares the way of long lists with that of short ones, which
// tries everything.
func TestLongListsHaveAsMuchInCommon(t *testing.T) {
	for _, row := range []struct {
		name string
		// alphabet is how many numbers there are, and longest how long a list is at most.
		alphabet, longest int
		exact             bool
	}{
		{"hardly a number twice", 60, 20, true},
		{"no number more often than is tried", 3, maxCandidates + 1, true},
		{"the same all over again", 3, 60, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				numbers := rapid.SliceOfN(rapid.IntRange(1, row.alphabet), 0, row.longest)
				want, got := numbers.Draw(t, "want"), numbers.Draw(t, "got")
				best, found := longestCommon(want, got), longCommon(want, got)
				common := kept(want, found.want)
				if !slices.Equal(common, kept(got, found.got)) {
					t.Fatalf("%v of want is not %v of got", common, kept(got, found.got))
				}
				exact := row.exact && !slices.ContainsFunc(want, func(n int) bool {
					return occurrences(want, n) > maxCandidates || occurrences(got, n) > maxCandidates
				})
				if longest := len(kept(want, best.want)); len(common) > longest ||
					exact && len(common) < longest {
					t.Fatalf("%d in common, want %d", len(common), longest)
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
