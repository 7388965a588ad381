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
		hasFields = s.and(hasFields, s.or(setOf(fieldMatch), setOf(rules.Negated(fieldMatch))))
	}
	return s.minus(hasFields, packets)
}
