package rules

import (
	"fmt"
	"slices"
	"strings"
)

// A Difference is one thing in which a ruleset that was found differs from the one that was expected.
type Difference struct {
	Kind DifferenceKind `json:"kind"`
	// Where is the place: "table inet sluice", "chain inet sluice nat-output" or "routing"; or a set that rules of
	// a chain use: "chain inet sluice nat-output, set outbound-exclude-ipv4", of which Want and Got list elements.
	Where string `json:"where"`
	// Want is what was expected there and Got what was found; empty where there is none.
	Want string `json:"want,omitempty"`
	Got  string `json:"got,omitempty"`
}

// DifferenceKind says how two rulesets differ at a place.
type DifferenceKind string

// The kinds of differences.
const (
	Missing   DifferenceKind = "missing"
	Extra     DifferenceKind = "extra"
	Changed   DifferenceKind = "changed"
	Reordered DifferenceKind = "reordered" // the same rule, but not at its place among the others
)

// String describes the difference in a line.
func (d Difference) String() string {
	switch d.Kind {
	case Missing:
		return fmt.Sprintf("missing in %s: %s", d.Where, d.Want)
	case Changed:
		return fmt.Sprintf("changed in %s: want %s, found %s", d.Where, d.Want, d.Got)
	}
	return fmt.Sprintf("%s in %s: %s", d.Kind, d.Where, d.Got)
}

// Compare lists in what got differs from want, as written: two rulesets that treat every packet alike by other rules do differ
// here. The order of rules counts, that of tables and chains does not; comments, counters and positions do not count.
func Compare(want, got Ruleset) []Difference {
	diffs := compareNamed(want.Tables, got.Tables,
		func(t *Table) string { return "table " + t.Family.String() + " " + t.Name }, compareTables)
	return append(diffs, compareRouting(want.Routing, got.Routing)...)
}

// Equal tells whether [Compare] finds nothing.
func Equal(a, b Ruleset) bool { return len(Compare(a, b)) == 0 }

// compareNamed pairs up things by their names, and compares the pairs.
func compareNamed[T any](want, got []T, name func(*T) string, compare func(want, got *T) []Difference) []Difference {
	var diffs []Difference
	find := func(list []T, key string) *T {
		for i := range list {
			if name(&list[i]) == key {
				return &list[i]
			}
		}
		return nil
	}
	for i := range want {
		key := name(&want[i])
		if found := find(got, key); found != nil {
			diffs = append(diffs, compare(&want[i], found)...)
			continue
		}
		diffs = append(diffs, Difference{Kind: Missing, Where: "the ruleset", Want: key})
	}
	for i := range got {
		if key := name(&got[i]); find(want, key) == nil {
			diffs = append(diffs, Difference{Kind: Extra, Where: "the ruleset", Got: key})
		}
	}
	return diffs
}

func compareTables(want, got *Table) []Difference {
	place := want.Family.String() + " " + want.Name + " "
	return compareNamed(want.Chains, got.Chains,
		func(c *Chain) string { return "chain " + place + c.Name },
		func(want, got *Chain) []Difference { return compareChains("chain "+place+want.Name, want, got) })
}

func compareChains(where string, want, got *Chain) []Difference {
	var diffs []Difference
	if !sameBase(want.Base, got.Base) {
		diffs = append(diffs, Difference{Kind: Changed, Where: where, Want: want.Base.String(), Got: got.Base.String()})
	}
	if slices.EqualFunc(want.Rules, got.Rules, sameRule) {
		return diffs
	}
	kept := commonRules(want.Rules, got.Rules)
	var missing, extra []*Rule
	for i := range want.Rules {
		if !kept.want[i] {
			missing = append(missing, &want.Rules[i])
		}
	}
	for i := range got.Rules {
		if !kept.got[i] {
			extra = append(extra, &got.Rules[i])
		}
	}
	return append(diffs, explainRules(where, missing, extra)...)
}

// sameBase tells whether two chains are attached alike, whatever runs before and after them.
func sameBase(a, b *Base) bool {
	if a == nil || b == nil {
		return a == b
	}
	unordered := *a
	unordered.Order = b.Order
	return unordered == *b
}

// explainRules pairs the rules that are only on one side: the same rule elsewhere is reordered, and of one that differs in a set's
// elements only, these are missing or extra.
func explainRules(where string, missing, extra []*Rule) []Difference {
	var diffs []Difference
	take := func(same func(*Rule) bool) *Rule {
		i := slices.IndexFunc(extra, same)
		if i < 0 {
			return nil
		}
		found := extra[i]
		extra = slices.Delete(extra, i, i+1)
		return found
	}
	for _, w := range missing {
		if take(func(r *Rule) bool { return sameRule(*w, *r) }) != nil {
			diffs = append(diffs, Difference{Kind: Reordered, Where: where, Want: w.String(), Got: w.String()})
		} else if found := take(func(r *Rule) bool { return len(changedSets(where, w, r)) > 0 }); found != nil {
			for _, d := range changedSets(where, w, found) {
				if !slices.Contains(diffs, d) { // several rules may use the set
					diffs = append(diffs, d)
				}
			}
		} else {
			diffs = append(diffs, Difference{Kind: Missing, Where: where, Want: w.String()})
		}
	}
	for _, r := range extra {
		diffs = append(diffs, Difference{Kind: Extra, Where: where, Got: r.String()})
	}
	return diffs
}

// changedSets describes two rules that differ only in what named sets hold; it returns nothing if they differ in more.
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
	var texts []string
	n := 0
	for _, r := range a.Ranges {
		if slices.Contains(b.Ranges, r) {
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

// common says which rules of two lists are part of their longest common subsequence.
type common struct{ want, got []bool }

// commonRules takes the square of the time and memory, but not for what is alike at the beginning and the end: that is nearly all
// where a rule was added or removed.
func commonRules(want, got []Rule) common {
	kept := common{make([]bool, len(want)), make([]bool, len(got))}
	first, last := 0, 0
	for ; first < min(len(want), len(got)) && sameRule(want[first], got[first]); first++ {
		kept.want[first], kept.got[first] = true, true
	}
	for ; last < min(len(want), len(got))-first && sameRule(want[len(want)-1-last], got[len(got)-1-last]); last++ {
		kept.want[len(want)-1-last], kept.got[len(got)-1-last] = true, true
	}
	middle := longestCommon(want[first:len(want)-last], got[first:len(got)-last])
	copy(kept.want[first:], middle.want)
	copy(kept.got[first:], middle.got)
	return kept
}

func longestCommon(want, got []Rule) common {
	length := make([][]int, len(want)+1)
	for i := range length {
		length[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			if sameRule(want[i], got[j]) {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	kept := common{make([]bool, len(want)), make([]bool, len(got))}
	for i, j := 0, 0; i < len(want) && j < len(got); {
		switch {
		case sameRule(want[i], got[j]):
			kept.want[i], kept.got[j] = true, true
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return kept
}

// sameRule tells whether two rules do the same to the same packets by the same matches and actions.
func sameRule(a, b Rule) bool {
	return slices.Equal(a.Actions, b.Actions) && slices.EqualFunc(a.Matches, b.Matches, sameMatch)
}

func sameMatch(a, b Match) bool {
	switch a := a.(type) {
	case MatchInterface:
		b, ok := b.(MatchInterface)
		return ok && a.Out == b.Out && a.Not == b.Not && slices.Equal(a.Names, b.Names)
	case MatchAddr:
		b, ok := b.(MatchAddr)
		return ok && a.Side == b.Side && a.Not == b.Not && slices.Equal(a.Ranges, b.Ranges)
	case MatchProtocol:
		b, ok := b.(MatchProtocol)
		return ok && a.Not == b.Not && slices.Equal(a.Protocols, b.Protocols)
	case MatchPort:
		b, ok := b.(MatchPort)
		return ok && a.Side == b.Side && a.Not == b.Not && slices.Equal(a.Ports, b.Ports)
	case MatchOwner:
		b, ok := b.(MatchOwner)
		return ok && a.Group == b.Group && a.Not == b.Not && a.Socketless == b.Socketless && slices.Equal(a.IDs, b.IDs)
	}
	return a == b
}

func compareRouting(want, got Routing) []Difference {
	const where = "routing"
	var diffs []Difference
	for _, p := range want.Policies {
		if !slices.Contains(got.Policies, p) {
			diffs = append(diffs, Difference{Kind: Missing, Where: where, Want: p.String()})
		}
	}
	for _, p := range got.Policies {
		if !slices.Contains(want.Policies, p) {
			diffs = append(diffs, Difference{Kind: Extra, Where: where, Got: p.String()})
		}
	}
	for _, a := range want.LoopbackAddrs {
		if !slices.Contains(got.LoopbackAddrs, a) {
			diffs = append(diffs, Difference{Kind: Missing, Where: where, Want: "address " + a.String() + " dev lo"})
		}
	}
	for _, a := range got.LoopbackAddrs {
		if !slices.Contains(want.LoopbackAddrs, a) {
			diffs = append(diffs, Difference{Kind: Extra, Where: where, Got: "address " + a.String() + " dev lo"})
		}
	}
	return diffs
}

// String writes the policy rule and its route as the ip command does.
func (p PolicyRoute) String() string {
	family := map[Family]string{IPv4: "-4", IPv6: "-6"}[p.Family]
	return fmt.Sprintf("ip %s rule priority %d fwmark 0x%x lookup %d; local default dev lo table %d",
		family, p.Priority, p.Mark, p.Table, p.Table)
}

// String writes the attachment as nft does.
func (b *Base) String() string {
	if b == nil {
		return "no hook"
	}
	policy := Accept
	if b.Drop {
		policy = Drop
	}
	return fmt.Sprintf("type %s hook %s priority %d; policy %s;", b.Type, b.Hook, b.Priority, policy)
}
