package rules

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"
)

// compareRules returns the differences of the rules of a chain, in time and memory that are
// near-linear in their number.
func compareRules(where string, want, got []Rule) []Difference {
	n := newNumbering()
	wanted, found := n.numbers(want), n.numbers(got)
	kept := commonRules(wanted, found)
	extra := unpaired{byNumber: map[int][]int{}, byText: map[string][]int{}}
	for i := range got {
		if !kept.got[i] {
			extra.add(&got[i], found[i])
		}
	}
	var diffs []Difference
	reported := map[Difference]bool{}
	for i := range want {
		if kept.want[i] {
			continue
		}
		w := &want[i]
		if extra.takeSame(wanted[i]) {
			diffs = append(diffs, Difference{
				Kind: Reordered, Where: where, Want: w.String(), Got: w.String(),
			})
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
	taken []bool
	// The sorted indices of rules: by the number of the rule, and by the text of rules with named
	// sets.
	byNumber map[int][]int
	byText   map[string][]int
}

func (u *unpaired) add(r *Rule, number int) {
	i := len(u.rules)
	u.rules, u.taken = append(u.rules, r), append(u.taken, false)
	u.byNumber[number] = append(u.byNumber[number], i)
	if usesSet(r) {
		text := r.String()
		u.byText[text] = append(u.byText[text], i)
	}
}

// takeSame removes the first rule with the number, and reports whether there is one.
func (u *unpaired) takeSame(number int) bool {
	list := u.remaining(u.byNumber[number])
	if len(list) == 0 {
		return false
	}
	u.taken[list[0]] = true
	u.byNumber[number] = list[1:]
	return true
}

// takeChanged removes the first rule that differs only in the elements of named sets, and returns
// the differences; nil if there is none.
func (u *unpaired) takeChanged(where string, want *Rule) []Difference {
	if !usesSet(want) {
		return nil
	}
	// Usually few rules have the same text; the limit protects against rulesets made to be slow.
	const most = 8
	text := want.String()
	list := u.remaining(u.byText[text])
	u.byText[text] = list
	for _, i := range list[:min(most, len(list))] {
		if diffs := changedSets(where, want, u.rules[i]); !u.taken[i] && len(diffs) > 0 {
			u.taken[i] = true
			return diffs
		}
	}
	return nil
}

// remaining returns the list without removed elements at its begin.
func (u *unpaired) remaining(list []int) []int {
	for len(list) > 0 && u.taken[list[0]] {
		list = list[1:]
	}
	return list
}

func usesSet(r *Rule) bool {
	return slices.ContainsFunc(r.Matches, func(m Match) bool {
		addr, ok := m.(MatchAddr)
		return ok && addr.Set != ""
	})
}

// changedSets returns the differences of two rules that differ only in the elements of named sets,
// otherwise nil.
func changedSets(where string, want, got *Rule) []Difference {
	if len(want.Matches) != len(got.Matches) || want.String() != got.String() {
		return nil
	}
	var diffs []Difference
	for i, m := range want.Matches {
		if sameMatch(m, got.Matches[i]) {
			continue
		}
		w, isAddr := m.(MatchAddr)
		g, isAddrToo := got.Matches[i].(MatchAddr)
		if !isAddr || !isAddrToo {
			return nil
		}
		place := where + ", set " + w.Set
		if lost := without(w, g); lost != "" {
			diffs = append(diffs, Difference{Kind: Missing, Where: place, Want: lost})
		}
		if added := without(g, w); added != "" {
			diffs = append(diffs, Difference{Kind: Extra, Where: place, Got: added})
		}
	}
	return diffs
}

// without returns the text of the ranges of a that are not ranges of b.
func without(a, b MatchAddr) string {
	const most = 8
	known := make(map[netipx.IPRange]bool, len(b.Ranges))
	for _, r := range b.Ranges {
		known[r] = true
	}
	var texts []string
	n := 0
	for _, r := range a.Ranges {
		if known[r] {
			continue
		}
		if n++; n <= most {
			texts = append(texts, formatAddrRange(r))
		}
	}
	if n > most {
		texts = append(texts, fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(texts, ", ")
}
