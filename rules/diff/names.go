package diff

import (
	"unsafe"

	"github.com/sluice-mesh/sluice/rules"
)

// interfaceNames returns the names of interfaces in the rulesets.
func interfaceNames(rulesets ...rules.Ruleset) []rules.InterfaceName {
	var n names
	for i := range rulesets {
		for r := range allRules(&rulesets[i]) {
			n.addRule(r)
		}
	}
	return n.list
}

// names collects the names of interfaces. A list that several rules share is read once.
type names struct {
	list   []rules.InterfaceName
	lists  map[nameList]bool
	tuples map[alternatives]bool
}

// nameList identifies a list of names by its memory.
type nameList struct {
	first *rules.InterfaceName
	count int
}

func nameListOf(list []rules.InterfaceName) nameList {
	return nameList{unsafe.SliceData(list), len(list)}
}

func (n *names) addRule(r *rules.Rule) {
	for _, m := range r.Matches {
		n.addMatch(m)
	}
	for _, a := range r.Actions {
		if require, ok := a.(rules.Require); ok {
			n.addMatch(require.Match)
		}
	}
}

func (n *names) addMatch(match rules.Match) {
	switch m := match.(type) {
	case rules.MatchInterface:
		if list := nameListOf(m.Names); !n.lists[list] {
			lazySet(&n.lists, list, true)
			n.list = append(n.list, m.Names...)
		}
	case rules.MatchTuple:
		list := alternativesOf(m)
		if n.tuples[list] {
			return
		}
		lazySet(&n.tuples, list, true)
		for _, matches := range m.Alternatives {
			for _, m := range matches {
				n.addMatch(m)
			}
		}
	}
}
