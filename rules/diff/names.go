package diff

import (
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// interfaceNames returns the names of interfaces in the rulesets.
func interfaceNames(rulesets ...rules.Ruleset) []rules.InterfaceName {
	var n nameCollector
	for i := range rulesets {
		for r := range allRules(&rulesets[i]) {
			n.addRule(r)
		}
	}
	return n.list
}

// A nameCollector collects the names of interfaces. It reads a list that several rules share once.
type nameCollector struct {
	list   []rules.InterfaceName
	lists  map[nameListKey]bool
	tuples map[alternativesKey]bool
}

// A nameListKey identifies a list of names by its address in memory.
type nameListKey struct {
	first *rules.InterfaceName
	count int
}

func nameListKeyOf(list []rules.InterfaceName) nameListKey {
	return nameListKey{unsafe.SliceData(list), len(list)}
}

// addRule adds the names in the matches of the rule.
func (n *nameCollector) addRule(r *rules.Rule) {
	for _, m := range r.Matches {
		n.addMatch(m)
	}
	for _, a := range r.Actions {
		if require, ok := a.(rules.Require); ok {
			n.addMatch(require.Match)
		}
	}
}

func (n *nameCollector) addMatch(match rules.Match) {
	switch m := match.(type) {
	case rules.MatchInterface:
		if list := nameListKeyOf(m.Names); !n.lists[list] {
			storeIn(&n.lists, list, true)
			n.list = append(n.list, m.Names...)
		}
	case rules.MatchTuple:
		list := alternativesKeyOf(m)
		if n.tuples[list] {
			return
		}
		storeIn(&n.tuples, list, true)
		for _, matches := range m.Alternatives {
			for _, m := range matches {
				n.addMatch(m)
			}
		}
	}
}
