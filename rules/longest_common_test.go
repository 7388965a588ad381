package rules

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// kept returns the elements of list for which keep is true.
func kept(list []int, keep []bool) []int {
	var numbers []int
	for i, n := range list {
		if keep[i] {
			numbers = append(numbers, n)
		}
	}
	return numbers
}

// TestLongestCommonOfLongLists compares huntSzymanski, the algorithm for long lists, with
// longestCommon, which always returns a longest common subsequence.
func TestLongestCommonOfLongLists(t *testing.T) {
	for _, row := range []struct {
		name string
		// alphabet is the number of different values, and maxLength the maximum length of a list.
		alphabet, maxLength int
		// longest requires a longest common subsequence if no value is too frequent.
		longest bool
	}{
		{"few repeated values", 60, 20, true},
		{"values that occur about maxDistance times", 3, maxDistance + 1, true},
		{"many repetitions", 3, 60, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				numbers := rapid.SliceOfN(rapid.IntRange(1, row.alphabet), 0, row.maxLength)
				want, got := numbers.Draw(t, "want"), numbers.Draw(t, "got")
				exact, fast := longestCommon(want, got), huntSzymanski(want, got)
				common := kept(want, fast.want)
				if !slices.Equal(common, kept(got, fast.got)) {
					t.Fatalf("the subsequence of want is %v, but the subsequence of got is %v", common,
						kept(got, fast.got))
				}
				mustBeLongest := row.longest && !slices.ContainsFunc(want, func(n int) bool {
					return occurrences(want, n) > maxDistance+1 || occurrences(got, n) > maxDistance+1
				})
				if longest := len(kept(want, exact.want)); len(common) > longest ||
					mustBeLongest && len(common) < longest {
					t.Fatalf("the common subsequence has length %d, a longest one %d; must be longest: %t",
						len(common), longest, mustBeLongest)
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
