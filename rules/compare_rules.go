package rules

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"
)

// compareRules returns the differences of two lists of rules. where describes the chain of the
// rules. The time and memory that compareRules needs are near-linear in the number of rules.
func compareRules(where string, want, got []Rule) []Difference {
	numbering := newNumbering()
	wantNumbers, gotNumbers := numbering.numbers(want), numbering.numbers(got)
	common := commonRules(wantNumbers, gotNumbers)
	extra := unpaired{byNumber: map[int][]int{}, byText: map[string][]int{}}
	for i := range got {
		if !common.got[i] {
			extra.add(&got[i], gotNumbers[i])
		}
	}
	var diffs []Difference
	reported := map[Difference]bool{}
	for i := range want {
		if common.want[i] {
			continue
		}
		w := &want[i]
		if extra.takeSame(wantNumbers[i]) {
			diffs = append(diffs, Difference{Reordered, where, w.String(), w.String()})
		} else if sets := extra.takeChanged(where, w); len(sets) > 0 {
			for _, d := range sets {
				if !reported[d] { // several rules may use the set
					diffs = append(diffs, d)
				}
				reported[d] = true
			}
		} else {
			diffs = append(diffs, Difference{Kind: Missing, Where: where, Want: w.String()})
		}
	}
	for i, r := range extra.rules {
		if !extra.taken[i] {
			diffs = append(diffs, Difference{Kind: Extra, Where: where, Got: r.String()})
		}
	}
	return diffs
}

// unpaired contains the rules of got that are not at their expected position. Each may be expected
// elsewhere, may differ from an expected rule only in the elements of sets, or may be unexpected.
type unpaired struct {
	rules []*Rule
	taken []bool // the rule is already part of a difference
	// byNumber maps the number of a rule to the indices of the rules with this number. byText maps
	// a text to the indices of the rules that have this text and use named sets. The indices are
	// sorted.
	byNumber map[int][]int
	byText   map[string][]int
}

// add adds a rule with its number (see numbering).
func (u *unpaired) add(r *Rule, number int) {
	i := len(u.rules)
	u.rules, u.taken = append(u.rules, r), append(u.taken, false)
	u.byNumber[number] = append(u.byNumber[number], i)
	if usesSet(r) {
		text := r.String()
		u.byText[text] = append(u.byText[text], i)
	}
}

// takeSame takes the first remaining rule with the number, and reports whether there is one.
func (u *unpaired) takeSame(number int) bool {
	indices := u.remaining(u.byNumber[number])
	if len(indices) == 0 {
		return false
	}
	u.taken[indices[0]] = true
	u.byNumber[number] = indices[1:]
	return true
}

// takeChanged takes the first remaining rule that differs from want only in the elements of named
// sets, and returns the differences. It returns nil if there is no such rule among the first
// maxCompared rules with the text of want.
func (u *unpaired) takeChanged(where string, want *Rule) []Difference {
	if !usesSet(want) {
		return nil
	}
	// Usually few rules have the same text. The limit protects against rulesets that are crafted to
	// make the comparison slow.
	const maxCompared = 8
	text := want.String()
	indices := u.remaining(u.byText[text])
	u.byText[text] = indices
	for _, i := range indices[:min(maxCompared, len(indices))] {
		if diffs := changedSets(where, want, u.rules[i]); !u.taken[i] && len(diffs) > 0 {
			u.taken[i] = true
			return diffs
		}
	}
	return nil
}

// remaining returns the indices from the first one whose rule is not taken.
func (u *unpaired) remaining(indices []int) []int {
	for len(indices) > 0 && u.taken[indices[0]] {
		indices = indices[1:]
	}
	return indices
}

// usesSet reports whether the rule uses a named set.
func usesSet(r *Rule) bool {
	return slices.ContainsFunc(r.Matches, func(m Match) bool {
		addr, ok := m.(MatchAddr)
		return ok && addr.Set != ""
	})
}

// changedSets returns the differences of two rules that differ only in the elements of named sets.
// For other rules it returns nil.
func changedSets(where string, want, got *Rule) []Difference {
	if len(want.Matches) != len(got.Matches) || want.String() != got.String() {
		return nil
	}
	var diffs []Difference
	for i, m := range want.Matches {
		if sameMatch(m, got.Matches[i]) {
			continue
		}
		w, wantsAddr := m.(MatchAddr)
		g, hasAddr := got.Matches[i].(MatchAddr)
		if !wantsAddr || !hasAddr {
			return nil
		}
		set := where + ", set " + w.Set
		if missing := rangesNotIn(w, g); missing != "" {
			diffs = append(diffs, Difference{Kind: Missing, Where: set, Want: missing})
		}
		if extra := rangesNotIn(g, w); extra != "" {
			diffs = append(diffs, Difference{Kind: Extra, Where: set, Got: extra})
		}
	}
	return diffs
}

// rangesNotIn lists the ranges of a that are not ranges of b: the first 8 ranges, and the number of
// further ones.
func rangesNotIn(a, b MatchAddr) string {
	const maxListed = 8
	known := make(map[netipx.IPRange]bool, len(b.Ranges))
	for _, r := range b.Ranges {
		known[r] = true
	}
	var texts []string
	count := 0
	for _, r := range a.Ranges {
		if known[r] {
			continue
		}
		if count++; count <= maxListed {
			texts = append(texts, FormatAddrRange(r))
		}
	}
	if count > maxListed {
		texts = append(texts, fmt.Sprintf("and %d more", count-maxListed))
	}
	return strings.Join(texts, ", ")
}
