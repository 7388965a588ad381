package rules

import (
	"slices"
	"strings"
)

// MatchTuple is nft's concatenation: it matches packets that satisfy all conditions of at least one
// alternative or, with Not, packets that satisfy no alternative. A packet that lacks any of the
// compared fields does not match in either case. If Alternatives is empty and Not is false, no
// packet matches.
type MatchTuple struct {
	Not          bool
	Alternatives [][]Match
}

// UsesUnknown reports whether an alternative has an unsupported condition.
func (m MatchTuple) UsesUnknown() bool {
	return slices.ContainsFunc(m.Alternatives, func(matches []Match) bool {
		return slices.ContainsFunc(matches, func(m Match) bool {
			_, ok := m.(Unknown)
			return ok
		})
	})
}

func (m MatchTuple) rank() int { return 3 }

// String returns the match in a notation similar to nft's, which nft does not accept.
func (m MatchTuple) String() string {
	alternatives := textsOf(m.Alternatives, func(matches []Match) string {
		return strings.Join(textsOf(matches, Match.String), " . ")
	})
	text := "{ " + strings.Join(alternatives, ", ") + " }"
	if len(alternatives) == 0 {
		text = "{ }"
	}
	return not(m.Not) + text
}
