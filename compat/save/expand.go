package save

import (
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// maxCombinations is the maximum number of rules for a rule with lists of addresses that could also
// be a single rule: if the addresses of each list are disjoint, a packet matches at most one
// combination.
const maxCombinations = 4096

// maxExpansion limits the memory for rules that result from lists of addresses in a text: the
// number of their matches plus two for each rule. This allows about 300,000 rules and 100 MB.
const maxExpansion = 1 << 20

// headers returns the header matches of each resulting rule. merged reports that one rule
// represents several.
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

// headerSize is the size of a rule other than its match modules: two for the rule, and two for the
// header matches.
const headerSize = 4

// disjoint returns a single match for addresses on one side that are pairwise disjoint; false
// otherwise.
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
	m.Ranges = rules.NormalizeAddrs(m.Ranges)
	return []rules.Match{m}, true
}
