package rules

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// common returns the common subsequence that huntSzymanski finds.
func common(t *rapid.T, want, got []int, distance int) []int {
	positions := map[int][]int{}
	for j, number := range got {
		positions[number] = append(positions[number], j)
	}
	var numbers []int
	for p := huntSzymanski(want, positions, distance); p != nil; p = p.previous {
		if want[p.want] != got[p.got] || p.previous != nil &&
			(p.previous.want >= p.want || p.previous.got >= p.got) {
			t.Fatalf("the pair of %d and %d follows %+v", p.want, p.got, p.previous)
		}
		numbers = append(numbers, want[p.want])
	}
	return numbers
}

// longestLength returns the length of a longest common subsequence.
func longestLength(want, got []int) int {
	lengths := make([]int, len(got)+1) // of want so far and each beginning of got
	for _, number := range want {
		before := slices.Clone(lengths)
		for j := range got {
			lengths[j+1] = max(before[j+1], lengths[j])
			if got[j] == number {
				lengths[j+1] = before[j] + 1
			}
		}
	}
	return lengths[len(got)]
}

func TestHuntSzymanskiReturnsALongestCommonSubsequence(t *testing.T) {
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
				longest := longestLength(want, got)
				if all := common(t, want, got, row.maxLength); len(all) != longest {
					t.Fatalf("all pairs: the length is %d, a longest one has %d", len(all), longest)
				}
				mustBeLongest := row.longest && !slices.ContainsFunc(want, func(n int) bool {
					return occurrences(want, n) > maxDistance+1 || occurrences(got, n) > maxDistance+1
				})
				if found := len(common(t, want, got, maxDistance)); found > longest ||
					mustBeLongest && found < longest {
					t.Fatalf("near pairs: the length is %d, a longest one has %d; must be longest: %t",
						found, longest, mustBeLongest)
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
