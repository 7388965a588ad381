package rules

import (
	"fmt"
	"slices"
	"strings"

	"go4.org/netipx"
)

// compareRules lists in what the rules of a chain differ, in a time and memory that grow little
// faster than their number.
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
	told := map[Difference]bool{}
	for i := range want {
		if kept.want[i] {
			continue
		}
		w := &want[i]
		if extra.takeSame(wanted[i]) {
			diffs = append(diffs, Difference{Kind: Reordered, Where: where, Want: w.String(), Got: w.String()})
		} else if sets := extra.takeChanged(where, w); len(sets) > 0 {
			for _, d := range sets {
				if !told[d] { // several rules may use the set
					diffs = append(diffs, d)
				}
				told[d] = true
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

// unpaired are the rules that were found where they are not wanted. The same rule is wanted
// elsewhere, or one that differs only in the elements of sets, or none.
type unpaired struct {
	rules []*Rule
	taken []bool
	// The indices of rules, in order: of those with a number, and of those with named sets and the
	// same text.
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

// takeSame takes the first rule with the number, and reports whether there is one.
func (u *unpaired) takeSame(number int) bool {
	list := u.remaining(u.byNumber[number])
	if len(list) == 0 {
		return false
	}
	u.taken[list[0]] = true
	u.byNumber[number] = list[1:]
	return true
}

// takeChanged takes the first rule that differs only in what named sets hold, and returns in what;
// nothing if there is none.
func (u *unpaired) takeChanged(where string, want *Rule) []Difference {
	if !usesSet(want) {
		return nil
	}
	// Of one text there are few, unless somebody wants to keep us busy.
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

// remaining is the list without those taken at its beginning.
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

// changedSets describes two rules that differ only in what named sets hold; it returns nothing if
// they differ in more.
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

// without lists the ranges of a that are not ranges of b.
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
