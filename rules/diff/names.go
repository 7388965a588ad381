package diff

import (
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// interfaceNames returns the names of interfaces in the rulesets.
func interfaceNames(rulesets ...rules.Ruleset) []rules.InterfaceName {
	var n nameCollector
	for i := range rulesets {
		for _, r := range rulesets[i].AllRules() {
			for m := range r.AllMatches() {
				n.addMatch(m)
			}
		}
	}
	return n.names
}

// A nameCollector collects the names of interfaces. If several rules share a list, the list is read
// only once.
type nameCollector struct {
	names      []rules.InterfaceName
	seenLists  map[nameListKey]bool
	seenTuples map[alternativesKey]bool
}

// A nameListKey identifies a list of names by its address in memory.
type nameListKey struct {
	first *rules.InterfaceName
	count int
}

func nameListKeyOf(list []rules.InterfaceName) nameListKey {
	return nameListKey{unsafe.SliceData(list), len(list)}
}

// addMatch adds the names in the match.
func (n *nameCollector) addMatch(match rules.Match) {
	switch m := match.(type) {
	case rules.MatchInterface:
		if key := nameListKeyOf(m.Names); !n.seenLists[key] {
			storeIn(&n.seenLists, key, true)
			n.names = append(n.names, m.Names...)
		}
	case rules.MatchTuple:
		key := alternativesKeyOf(m)
		if n.seenTuples[key] {
			return
		}
		storeIn(&n.seenTuples, key, true)
		for _, matches := range m.Alternatives {
			for _, m := range matches {
				n.addMatch(m)
			}
		}
	}
}
