package save

import (
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// maxCombinations is how many rules a rule with lists of addresses becomes at most, if it can be
// one rule with the same effect: if the addresses of each list are disjoint, a packet matches one
// combination at most.
const maxCombinations = 4096

// maxExpansion bounds the memory for the rules that lists of addresses make of others, in a text:
// the number of these rules, and that of their matches, of which each rule counts for two more.
// That is up to some 300,000 rules and 100 MB.
const maxExpansion = 1 << 20

// headers lists what the header compares, for each rule that is to be. It reports whether one rule
// stands for several.
func (r *ruleReader) headers(others int) (list [][]rules.Match, merged bool) {
	h := &r.header
	combinations := max(len(h.source), 1) * max(len(h.destination), 1)
	if combinations > maxCombinations {
		source, okSource := disjoint(h.source)
		destination, okDestination := disjoint(h.destination)
		if okSource && okDestination {
			h.source, h.destination = source, destination
			return h.matches(), true
		}
	}
	if combinations > 1 {
		r.expanded += combinations * (others + headerSize)
		if combinations > maxExpansion || r.expanded > maxExpansion {
			const want = "lists of addresses that are disjoint, or shorter ones: " +
				"the lists of a text make up to %d rules and matches"
			r.fail(h.list, want, maxExpansion)
			return nil, false
		}
	}
	return h.matches(), false
}

// headerSize is what a rule counts for besides its match modules: itself, as two matches, and some
// for what its header compares.
const headerSize = 4

// disjoint returns one match for addresses that are all of one side and pairwise disjoint; false if
// they are not.
func disjoint(list []rules.Match) ([]rules.Match, bool) {
	if len(list) < 2 {
		return list, true
	}
	var m rules.MatchAddr
	for _, one := range list {
		of, ok := one.(rules.MatchAddr)
		if !ok || of.Not {
			return nil, false
		}
		m.Side = of.Side
		m.Ranges = append(m.Ranges, of.Ranges...)
	}
	slices.SortFunc(m.Ranges, func(a, b netipx.IPRange) int { return a.From().Compare(b.From()) })
	for i := range len(m.Ranges) - 1 {
		if !m.Ranges[i].To().Less(m.Ranges[i+1].From()) {
			return nil, false
		}
	}
	m.Ranges = rules.NormaliseAddrs(m.Ranges)
	return []rules.Match{m}, true
}
