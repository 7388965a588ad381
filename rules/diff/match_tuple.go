package diff

import (
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// A tupleKey identifies a tuple, by its list of alternatives, which several rules may share, and
// the view of its packets.
type tupleKey struct {
	alternativesKey
	not  bool
	view view
}

// An alternativesKey identifies the alternatives of a tuple by their address in memory.
type alternativesKey struct {
	first *[]rules.Match
	count int
}

func alternativesKeyOf(tuple rules.MatchTuple) alternativesKey {
	return alternativesKey{unsafe.SliceData(tuple.Alternatives), len(tuple.Alternatives)}
}

// tupleSet returns the packets that meet a static tuple. Several rules may share the alternatives
// of a tuple. Therefore the address of the alternatives is the key of the cached result, and not
// the position of the match.
func (m *matcher) tupleSet(tuple rules.MatchTuple, v *view) set {
	key := tupleKey{alternativesKeyOf(tuple), tuple.Not, *v}
	packets, ok := m.tuples[key]
	if !ok {
		packets = m.matchSet(tuple, v)
		m.meter.alloc(guardSize)
		storeIn(&m.tuples, key, packets)
	}
	return packets
}

// allStatic reports whether all of the matches are static.
func (m *matcher) allStatic(alternatives [][]rules.Match) bool {
	for _, matches := range alternatives {
		m.meter.step()
		for _, match := range matches {
			if !m.isStatic(match) {
				return false
			}
		}
	}
	return true
}

// tupleMatches returns the packets that meet an alternative or, if the tuple is negated, the
// packets that have all compared fields and meet no alternative. setOf returns the packets that
// meet one match of an alternative, which compares one field.
func (s *space) tupleMatches(m rules.MatchTuple, setOf func(rules.Match) set) set {
	sets := make([]set, len(m.Alternatives))
	for i, matches := range m.Alternatives {
		s.meter.step()
		sets[i] = all
		for _, fieldMatch := range matches {
			sets[i] = s.and(sets[i], setOf(fieldMatch))
		}
	}
	packets := s.unite(sets)
	if !m.Not || len(m.Alternatives) == 0 {
		return packets
	}
	hasFields := all
	for _, fieldMatch := range m.Alternatives[0] {
		if _, ok := fieldMatch.(rules.MatchFamily); ok {
			continue // every packet has a family
		}
		hasFields = s.and(hasFields, s.or(setOf(fieldMatch), setOf(negatedMatch(fieldMatch))))
	}
	return s.minus(hasFields, packets)
}

// negatedMatch returns the match of the packets that have the compared field with another value.
func negatedMatch(match rules.Match) rules.Match {
	switch m := match.(type) {
	case rules.MatchInterface:
		m.Not = !m.Not
		return m
	case rules.MatchAddr:
		m.Not = !m.Not
		return m
	case rules.MatchProtocol:
		m.Not = !m.Not
		return m
	case rules.MatchPort:
		m.Not = !m.Not
		return m
	case rules.MatchICMP:
		m.Not = !m.Not
		return m
	case rules.MatchOwner:
		m.Not = !m.Not
		return m
	case rules.MatchMark:
		m.Not = !m.Not
		return m
	case rules.MatchMarkRange:
		m.Not = !m.Not
		return m
	case rules.MatchState:
		m.Not = !m.Not
		return m
	case rules.MatchStatus:
		m.Not = !m.Not
		return m
	case rules.MatchDirection:
		m.Reply = !m.Reply
		return m
	case rules.MatchAddrType:
		m.Not = !m.Not
		return m
	case rules.MatchTCPFlags:
		m.Not = !m.Not
		return m
	case rules.MatchSocket:
		m.Not = !m.Not
		return m
	case rules.MatchListed:
		m.Not = !m.Not
		return m
	case rules.MatchReversePath:
		m.Not = !m.Not
		return m
	}
	return match
}
