package diff

import (
	"cmp"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A variant contains the two rulesets, compiled with some deviations disabled.
type variant struct {
	disabled []rules.DeviationID
	sides    Pair[*rules.Ruleset]
}

// has reports whether the ruleset of the side was compiled with the deviation.
func (s *Side) has(id rules.DeviationID) bool {
	switch {
	case s.Redirect != nil:
		return !slices.Contains(s.Redirect.Without, id)
	case s.Ambient != nil:
		return !slices.Contains(s.Ambient.Without, id)
	}
	return s.AmbientHost != nil && !slices.Contains(s.AmbientHost.Without, id)
}

// compile compiles the parameters of the side again, with additional deviations disabled.
func (s *Side) compile(ids []rules.DeviationID) (rules.Ruleset, error) {
	switch {
	case s.Redirect != nil:
		r := *s.Redirect
		r.Without = append(slices.Clone(r.Without), ids...)
		return rules.Compile(r)
	case s.Ambient != nil:
		a := *s.Ambient
		a.Without = append(slices.Clone(a.Without), ids...)
		return rules.CompileAmbient(a)
	}
	h := *s.AmbientHost
	h.Without = append(slices.Clone(h.Without), ids...)
	return rules.CompileAmbientHost(h)
}

// rulesetWithout returns the ruleset of the side with some deviations disabled. Deviations do not
// change the routing.
func (s *Side) rulesetWithout(current *rules.Ruleset, ids []rules.DeviationID) *rules.Ruleset {
	if !slices.ContainsFunc(ids, s.has) {
		return current
	}
	other, err := s.compile(ids)
	if err != nil {
		return current // the parameters are invalid, so the side was not compiled from them
	}
	other.Routing = current.Routing
	return &other
}

// buildVariants returns a variant for each combination of enabled deviations, the smallest
// combinations first. A variant disables a deviation on every side that has it. Deviations that do
// not change a rule of either side are omitted.
func (d *decision) buildVariants() []variant {
	var enabled []rules.DeviationID
	for _, deviation := range rules.Deviations {
		id := deviation.ID
		if !d.left.has(id) && !d.right.has(id) {
			continue
		}
		if v := d.variant([]rules.DeviationID{id}); isChanged(v.sides.Left, d.sides.Left) ||
			isChanged(v.sides.Right, d.sides.Right) {
			enabled = append(enabled, id)
		}
	}
	variants := make([]variant, 0, 1<<len(enabled)-1)
	for choice := 1; choice < 1<<len(enabled); choice++ {
		var ids []rules.DeviationID
		for i, id := range enabled {
			if choice>>i&1 == 1 {
				ids = append(ids, id)
			}
		}
		variants = append(variants, d.variant(ids))
	}
	slices.SortStableFunc(variants, func(a, b variant) int {
		return cmp.Compare(len(a.disabled), len(b.disabled))
	})
	return variants
}

// isChanged reports whether a variant of a ruleset has other rules. A ruleset that was not compiled
// is its own variant, and may contain tables of equal names, which [rules.Equal] does not compare.
func isChanged(variant, current *rules.Ruleset) bool {
	return variant != current && !rules.Equal(*variant, *current)
}

// variant returns the variant of the rulesets in which the deviations are disabled.
func (d *decision) variant(ids []rules.DeviationID) variant {
	return variant{
		ids,
		Pair[*rules.Ruleset]{
			d.left.rulesetWithout(d.sides.Left, ids), d.right.rulesetWithout(d.sides.Right, ids),
		},
	}
}

// splitByDeviation divides the differences by the deviations that explain them. Deviations explain
// a difference that does not exist when they are disabled.
func (d *decision) splitByDeviation(s *space, found []difference) []difference {
	if d.variants == nil {
		d.variants = d.buildVariants()
	}
	for _, v := range d.variants {
		isUnexplained := func(f difference) bool { return f.deviations == nil }
		if !slices.ContainsFunc(found, isUnexplained) {
			break
		}
		without := s.compare(walkAll(s, v.sides.Left, leftSide),
			walkAll(s, v.sides.Right, rightSide))
		// The packets that still differ, or may differ, without the deviations.
		remaining, describable := without.undecided, without.undecided
		for _, other := range without.differences {
			remaining = s.or(remaining, other.packets)
			describable = s.or(describable, other.describable)
		}
		var divided []difference
		for _, whole := range found {
			if whole.deviations != nil {
				divided = append(divided, whole)
				continue
			}
			explained, unexplained := whole, whole
			explained.deviations = v.disabled
			explained.packets = s.minus(whole.packets, remaining)
			explained.describable = s.minus(whole.describable, describable)
			unexplained.packets = s.and(whole.packets, remaining)
			unexplained.describable = s.and(whole.describable, describable)
			for _, split := range []difference{explained, unexplained} {
				if s.anyPossible(split.packets) {
					divided = append(divided, split)
				}
			}
		}
		found = divided
	}
	return found
}
