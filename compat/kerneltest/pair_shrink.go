package kerneltest

import (
	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ShrinkPair removes parts of a failure's rulesets while the kernel still contradicts the result of
// diff for the packet, and stops after maxShrinking. If the failure does not repeat, it returns the
// failure with [ErrNotRepeated].
func (n *Network) ShrinkPair(f PairFailure) (PairFailure, error) {
	smallest := f
	whole := diff.Pair[Ruleset]{Left: f.Left, Right: f.Right}
	err := shrink(whole, smallerPairs, func(p diff.Pair[Ruleset]) (bool, error) {
		counts := PairCounts{Unsent: map[string]int{}}
		err := n.checkPair(&counts, p.Left, p.Right, []rules.Packet{f.Packet},
			openListeners(&f.Packet), nil)
		if cannotCompare(err) {
			return false, nil
		}
		if err != nil || len(counts.Failures) == 0 {
			return false, err
		}
		smallest = counts.Failures[0]
		smallest.Seed = f.Seed
		return true, nil
	})
	return smallest, err
}

// smallerPairs returns the pairs that lack one part of one ruleset or, if the rulesets have equally
// many parts, of both.
func smallerPairs(p diff.Pair[Ruleset]) []diff.Pair[Ruleset] {
	var pairs []diff.Pair[Ruleset]
	left, right := p.Left.smaller(), p.Right.smaller()
	// Rulesets with equally many parts usually have the same parts: remove a part of both.
	if len(left) == len(right) {
		for i := range left {
			pairs = append(pairs, diff.Pair[Ruleset]{Left: left[i], Right: right[i]})
		}
	}
	for _, l := range left {
		pairs = append(pairs, diff.Pair[Ruleset]{Left: l, Right: p.Right})
	}
	for _, r := range right {
		pairs = append(pairs, diff.Pair[Ruleset]{Left: p.Left, Right: r})
	}
	return pairs
}
