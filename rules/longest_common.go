package rules

import "slices"

// commonSubsequence marks the rules of two lists that belong to a common subsequence.
type commonSubsequence struct{ want, got []bool }

func newCommonSubsequence(want, got []int) commonSubsequence {
	return commonSubsequence{make([]bool, len(want)), make([]bool, len(got))}
}

func (c commonSubsequence) add(want, got int) { c.want[want], c.got[got] = true, true }

// maxCells limits the time and memory of longestCommon: about 4 MB, for a thousand rules compared
// with a thousand others.
const maxCells = 1 << 20

// commonRules returns a common subsequence of two lists of numbers. It is a longest one, unless the
// lists are long and have many repetitions.
func commonRules(want, got []int) commonSubsequence {
	kept := newCommonSubsequence(want, got)
	first, last := 0, 0
	for ; first < min(len(want), len(got)) && want[first] == got[first]; first++ {
		kept.add(first, first)
	}
	for ; last < min(len(want), len(got))-first &&
		want[len(want)-1-last] == got[len(got)-1-last]; last++ {
		kept.add(len(want)-1-last, len(got)-1-last)
	}
	want, got = want[first:len(want)-last], got[first:len(got)-last]
	middle := longCommon
	if len(want)*len(got) <= maxCells {
		middle = longestCommon
	}
	found := middle(want, got)
	copy(kept.want[first:], found.want)
	copy(kept.got[first:], found.got)
	return kept
}

// longestCommon takes time and memory proportional to the product of the lengths.
func longestCommon(want, got []int) commonSubsequence {
	width := len(got) + 1
	// of the longest of the rests, from each pair of places
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

// maxCandidates limits, for repeated rules, the number of candidate positions in the other list
// that longCommon tries for each position.
const maxCandidates = 4

// A pair is a rule at a position in each list, and the previous pair of the longest common
// subsequence that ends with it.
type pair struct {
	want, got int
	before    *pair
}

// longCommon takes time n log n (Hunt and Szymanski, A Fast Algorithm for Computing Longest Common
// Subsequences, 1977), because there are few pairs of positions with the same rule. If rules are
// repeated more than near times, the result may not be a longest one.
func longCommon(want, got []int) commonSubsequence {
	places := map[int][]int{}
	for j, number := range got {
		places[number] = append(places[number], j)
	}
	// ends[k] is the last pair of the subsequence of length k+1 that ends first in got.
	var ends []*pair
	seen := map[int]int{}
	for i, number := range want {
		candidates := places[number]
		repeated := seen[number]
		seen[number]++
		candidates = candidates[min(max(0, repeated-maxCandidates),
			len(candidates)):min(repeated+maxCandidates+1, len(candidates))]
		// so that none comes before another of the same rule in want
		for _, j := range slices.Backward(candidates) {
			k, _ := slices.BinarySearchFunc(ends, j, func(p *pair, j int) int { return p.got - j })
			p := &pair{want: i, got: j}
			if k > 0 {
				p.before = ends[k-1]
			}
			if k == len(ends) {
				ends = append(ends, nil)
			}
			ends[k] = p
		}
	}
	kept := newCommonSubsequence(want, got)
	if len(ends) > 0 {
		for p := ends[len(ends)-1]; p != nil; p = p.before {
			kept.add(p.want, p.got)
		}
	}
	return kept
}
