package rules

import "slices"

// common says which rules of two lists are part of a common subsequence.
type common struct{ want, got []bool }

func newCommon(want, got []int) common {
	return common{make([]bool, len(want)), make([]bool, len(got))}
}

func (c common) keep(want, got int) { c.want[want], c.got[got] = true, true }

// maxCells bounds what longestCommon may take, of time and memory: a thousand rules compared with a
// thousand others, some 4 MB.
const maxCells = 1 << 20

// commonRules finds a common subsequence of two lists of numbers, the longest unless they are long
// and repeat themselves.
func commonRules(want, got []int) common {
	kept := newCommon(want, got)
	first, last := 0, 0
	for ; first < min(len(want), len(got)) && want[first] == got[first]; first++ {
		kept.keep(first, first)
	}
	for ; last < min(len(want), len(got))-first && want[len(want)-1-last] == got[len(got)-1-last]; last++ {
		kept.keep(len(want)-1-last, len(got)-1-last)
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

// longestCommon takes the product of the lengths in time and memory.
func longestCommon(want, got []int) common {
	width := len(got) + 1
	length := make([]int32, (len(want)+1)*width) // of the longest of the rests, from each pair of places
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if want[i] == got[j] {
				length[i*width+j] = length[(i+1)*width+j+1] + 1
			} else {
				length[i*width+j] = max(length[(i+1)*width+j], length[i*width+j+1])
			}
		}
	}
	kept := newCommon(want, got)
	for i, j := 0, 0; i < len(want) && j < len(got); {
		switch {
		case want[i] == got[j]:
			kept.keep(i, j)
			i, j = i+1, j+1
		case length[(i+1)*width+j] >= length[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	return kept
}

// near bounds how many places of a rule in one list longCommon tries for each of its places in the
// other: those that are as often repeated before, or so many times more or less.
const near = 4

// A pair is the same rule in both lists, and the pair before it in the longest common subsequence
// that ends with it.
type pair struct {
	want, got int
	before    *pair
}

// longCommon takes the time n log n (Hunt and Szymanski, A Fast Algorithm for Computing Longest
// Common Subsequences, 1977): there are few pairs of places with the same rule. Where rules are
// repeated more than near times, it may miss the longest.
func longCommon(want, got []int) common {
	places := map[int][]int{}
	for j, number := range got {
		places[number] = append(places[number], j)
	}
	// Of all subsequences of length k+1 so far, ends[k] is the last pair of the one that ends first
	// in got.
	var ends []*pair
	seen := map[int]int{}
	for i, number := range want {
		candidates := places[number]
		repeated := seen[number]
		seen[number]++
		candidates = candidates[min(max(0, repeated-near), len(candidates)):min(repeated+near+1, len(candidates))]
		for _, j := range slices.Backward(candidates) { // so that none comes before another of the same rule in want
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
	kept := newCommon(want, got)
	if len(ends) > 0 {
		for p := ends[len(ends)-1]; p != nil; p = p.before {
			kept.keep(p.want, p.got)
		}
	}
	return kept
}
