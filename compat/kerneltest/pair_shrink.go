package kerneltest

import (
	"time"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// ShrinkPair reduces the rulesets of a failure. It keeps a reduction if the kernel still
// contradicts the result of diff for the packet. It stops after maxShrinking. If the failure does
// not repeat, it returns the failure with [ErrNotRepeated].
func (n *Network) ShrinkPair(f PairFailure) (PairFailure, error) {
	smallest, begin := f, time.Now()
	// try reports whether the packet fails with the rulesets. If so, it stores the new failure.
	try := func(left, right Ruleset) (fails bool, err error) {
		counts := PairCounts{Unsent: map[string]int{}}
		err = n.checkPair(&counts, left, right, []rules.Packet{f.Packet}, openListeners(&f.Packet), nil)
		if cannotCompare(err) {
			return false, nil
		}
		if err != nil || len(counts.Failures) == 0 {
			return false, err
		}
		smallest = counts.Failures[0]
		smallest.Seed = f.Seed
		return true, nil
	}
	repeats, err := try(f.Left, f.Right)
	switch {
	case err != nil:
		return f, err
	case !repeats:
		return f, ErrNotRepeated
	}
	for changed := true; changed; {
		changed = false
		left, right := smallest.Left.smaller(), smallest.Right.smaller()
		var candidates []diff.Pair[Ruleset]
		// Rulesets with equally many parts usually have the same parts: remove a part of both.
		if len(left) == len(right) {
			for i := range left {
				candidates = append(candidates, diff.Pair[Ruleset]{Left: left[i], Right: right[i]})
			}
		}
		for _, l := range left {
			candidates = append(candidates, diff.Pair[Ruleset]{Left: l, Right: smallest.Right})
		}
		for _, r := range right {
			candidates = append(candidates, diff.Pair[Ruleset]{Left: smallest.Left, Right: r})
		}
		for _, c := range candidates {
			if time.Since(begin) > maxShrinking {
				return smallest, nil
			}
			fails, err := try(c.Left, c.Right)
			if err != nil {
				return smallest, err
			}
			if fails {
				changed = true
				break
			}
		}
	}
	return smallest, nil
}
