package diff

import (
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// A tupleKey identifies a tuple, by its list of alternatives, and the view of its packets.
type tupleKey struct {
	alternatives listKey[[]rules.Match]
	not          bool
	view         view
}

// A listKey identifies a list, which several rules may share, by its address in memory.
type listKey[T any] struct {
	first *T
	count int
}

func keyOf[T any](list []T) listKey[T] { return listKey[T]{unsafe.SliceData(list), len(list)} }

// tupleSet returns the packets that meet a static tuple. Several rules may share the alternatives
// of a tuple. Therefore the address of the alternatives is the key of the cached result, and not
// the position of the match.
func (m *matcher) tupleSet(tuple rules.MatchTuple, v *view) set {
	return cached(&m.tuples, tupleKey{keyOf(tuple.Alternatives), tuple.Not, *v}, func() set {
		m.meter.alloc(cachedSetSize)
		return m.matchSet(tuple, v)
	})
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
