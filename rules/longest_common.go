package rules

import "slices"

// commonSubsequence marks the rules of two lists that belong to a common subsequence.
type commonSubsequence struct{ want, got []bool }

// newCommonSubsequence returns an empty common subsequence of two lists.
func newCommonSubsequence(want, got []int) commonSubsequence {
	return commonSubsequence{make([]bool, len(want)), make([]bool, len(got))}
}

// add marks a rule by its positions in both lists.
func (c commonSubsequence) add(want, got int) { c.want[want], c.got[got] = true, true }

// maxCells limits the time and memory of longestCommon: about 4 MB, for a thousand rules compared
// with a thousand others.
const maxCells = 1 << 20

// commonRules returns a common subsequence of two lists of rules, which are given by their numbers
// (see numbering). It is a longest one, unless the lists are long and have many repetitions.
func commonRules(want, got []int) commonSubsequence {
	kept := newCommonSubsequence(want, got)
	prefix, suffix := 0, 0
	for ; prefix < min(len(want), len(got)) && want[prefix] == got[prefix]; prefix++ {
		kept.add(prefix, prefix)
	}
	for ; suffix < min(len(want), len(got))-prefix &&
		want[len(want)-1-suffix] == got[len(got)-1-suffix]; suffix++ {
		kept.add(len(want)-1-suffix, len(got)-1-suffix)
	}
	want, got = want[prefix:len(want)-suffix], got[prefix:len(got)-suffix]
	algorithm := huntSzymanski
	if len(want)*len(got) <= maxCells {
		algorithm = longestCommon
	}
	middle := algorithm(want, got)
	copy(kept.want[prefix:], middle.want)
	copy(kept.got[prefix:], middle.got)
	return kept
}

// longestCommon returns a longest common subsequence. It takes time and memory proportional to the
// product of the lengths.
func longestCommon(want, got []int) commonSubsequence {
	width := len(got) + 1
	// length[i*width+j] is the length of a longest common subsequence of want[i:] and got[j:].
	length := make([]int32, (len(want)+1)*width)
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	kept := newCommonSubsequence(want, got)
	for i, j := 0, 0; i < len(want) && j < len(got); {
		switch {
		case want[i] == got[j]:
			kept.add(i, j)
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return kept
}

// maxDistance limits the pairs of a repeated rule that huntSzymanski tries: the nth occurrence in
// want is paired only with the occurrences n-maxDistance to n+maxDistance in got.
const maxDistance = 4

// A pair contains the positions of a rule in both lists, and the previous pair of the longest
// common subsequence that ends with this pair.
type pair struct {
	want, got int
	previous  *pair
}

// huntSzymanski returns a common subsequence. It may be shorter than a longest one if a rule occurs
// more than maxDistance+1 times in a list. huntSzymanski takes time O(n log n) (Hunt and Szymanski,
// A Fast Algorithm for Computing Longest Common Subsequences, 1977), because each position in want
// is paired with at most 2*maxDistance+1 positions in got.
func huntSzymanski(want, got []int) commonSubsequence {
	positions := map[int][]int{}
	for j, number := range got {
		positions[number] = append(positions[number], j)
	}
	// Of the common subsequences of length k+1, ends[k] is the last pair of the one that ends first
	// in got.
	var ends []*pair
	occurrences := map[int]int{} // of each number in want so far
	for i, number := range want {
		candidates := positions[number]
		earlier := occurrences[number]
		occurrences[number]++
		// For the nth occurrence in want, try only occurrences near the nth in got.
		first := min(max(0, earlier-maxDistance), len(candidates))
		end := min(earlier+maxDistance+1, len(candidates))
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
	kept := newCommonSubsequence(want, got)
	if len(ends) > 0 {
		for p := ends[len(ends)-1]; p != nil; p = p.previous {
			kept.add(p.want, p.got)
		}
	}
	return kept
}
