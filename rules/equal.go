package rules

import (
	"hash/maphash"
	"slices"
)

// sameRule reports whether two rules have equal matches and actions.
func sameRule(a, b Rule) bool {
	return slices.EqualFunc(a.Actions, b.Actions, SameAction) &&
		slices.EqualFunc(a.Matches, b.Matches, sameMatch)
}

// SameAction reports whether two actions are equal.
func SameAction(a, b Action) bool {
	if x, ok := a.(Require); ok {
		y, ok := b.(Require)
		return ok && sameMatch(x.Match, y.Match)
	}
	return a == b
}

// sameMatch reports whether two matches are equal. It ignores the names of sets.
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
		return ok && a.Group == b.Group && a.Not == b.Not && a.Socketless == b.Socketless &&
			slices.Equal(a.IDs, b.IDs)
	case MatchCgroup:
		b, ok := b.(MatchCgroup)
		return ok && a.Same(b)
	case MatchMarkRange:
		b, ok := b.(MatchMarkRange)
		return ok && a.Conntrack == b.Conntrack && a.Not == b.Not &&
			slices.Equal(a.Values, b.Values)
	case MatchICMP:
		b, ok := b.(MatchICMP)
		return ok && a.V6 == b.V6 && a.Not == b.Not && slices.Equal(a.Values, b.Values)
	case MatchTuple:
		b, ok := b.(MatchTuple)
		return ok && a.Not == b.Not &&
			slices.EqualFunc(a.Alternatives, b.Alternatives, func(x, y []Match) bool {
				return slices.EqualFunc(x, y, sameMatch)
			})
	}
	return a == b
}

// A numbering assigns numbers to rules. Two rules have the same number if and only if sameRule
// reports true for them.
type numbering struct {
	seed maphash.Seed
	// known contains the numbered rules by their hash. count is the number of different rules, and
	// also the last assigned number.
	known map[uint64][]numberedRule
	count int
}

// A numberedRule is a rule with its number.
type numberedRule struct {
	rule   *Rule
	number int
}

func newNumbering() *numbering {
	return &numbering{seed: maphash.MakeSeed(), known: map[uint64][]numberedRule{}}
}

// numbers returns the numbers of the rules.
func (n *numbering) numbers(rules []Rule) []int {
	numbers := make([]int, len(rules))
	for i := range rules {
		numbers[i] = n.number(&rules[i])
	}
	return numbers
}

// number returns the number of the rule. A rule that is equal to no earlier one gets a new number.
func (n *numbering) number(r *Rule) int {
	h := hashRule(n.seed, r)
	for _, k := range n.known[h] {
		if sameRule(*k.rule, *r) {
			return k.number
		}
	}
	n.count++
	n.known[h] = append(n.known[h], numberedRule{r, n.count})
	return n.count
}

// hashRule returns a hash of some parts that sameRule compares: equal rules have equal hashes.
func hashRule(seed maphash.Seed, r *Rule) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, a := range r.Actions {
		if q, ok := a.(Require); ok {
			hashMatch(&h, q.Match)
		} else {
			maphash.WriteComparable(&h, a)
		}
	}
	for _, m := range r.Matches {
		hashMatch(&h, m)
	}
	return h.Sum64()
}

// hashMatch adds some parts of the match that sameMatch compares.
func hashMatch(h *maphash.Hash, m Match) {
	switch m := m.(type) {
	case MatchInterface:
		hashAll(h, m.Names)
	case MatchAddr:
		hashAll(h, m.Ranges)
	case MatchProtocol:
		hashAll(h, m.Protocols)
	case MatchPort:
		hashAll(h, m.Ports)
	case MatchOwner:
		hashAll(h, m.IDs)
	case MatchCgroup:
		maphash.WriteComparable(h, m.Level)
	case MatchMarkRange:
		hashAll(h, m.Values)
	case MatchICMP:
		hashAll(h, m.Values)
	case MatchTuple:
		for _, matches := range m.Alternatives {
			for _, m := range matches {
				hashMatch(h, m)
			}
		}
	default:
		maphash.WriteComparable(h, m)
	}
}

func hashAll[T comparable](h *maphash.Hash, values []T) {
	for _, v := range values {
		maphash.WriteComparable(h, v)
	}
}
