package save

import (
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// maxCombinations limits the separate rules for one rule of the text. Up to this number of
// combinations of a source and a destination, each combination becomes a separate rule. If there
// are more combinations, and the addresses of each list are disjoint, a single rule represents all
// combinations. This rule is equivalent, because a packet matches at most one combination.
// Otherwise only maxSize limits the number of rules.
const maxCombinations = 4096

// maxSize is the maximum sum of the sizes of a text's rules and chains. It limits their memory. The
// size of a rule is the number of its matches plus two. The header counts as two matches. A chain
// has the size of a rule without other matches. This allows at most 260,000 rules, which need
// 100 MB.
const maxSize = 1 << 20

// headerSize is the size of a rule without its match modules, in the unit of maxSize: two for the
// rule, and two for the header matches.
const headerSize = 4

// maxRules is the maximum number of rules and chains of a text.
const maxRules = maxSize / headerSize

// addSize adds to the size of the text. It returns false if the sum exceeds maxSize. The rest of
// the text is then not read.
func (p *parser) addSize(n int) bool {
	p.size += n
	return p.size <= maxSize
}

// expandHeader returns the header matches of each resulting rule. others is the number of other
// matches of the rule. merged reports whether one rule represents several combinations.
func (r *ruleReader) expandHeader(others int) (matches [][]rules.Match, merged bool) {
	h := &r.header
	combinations := max(len(h.source), 1) * max(len(h.destination), 1)
	if combinations > maxCombinations {
		source, sourceMerged := mergeDisjoint(h.source)
		destination, destinationMerged := mergeDisjoint(h.destination)
		if sourceMerged && destinationMerged {
			h.source, h.destination = source, destination
			if !r.addSize(others + headerSize + rangesOf(source) + rangesOf(destination)) {
				r.failSize()
			}
			return h.matches(), true
		}
	}
	if combinations > maxSize || !r.addSize(combinations*(others+headerSize)) {
		r.failSize()
		return nil, false
	}
	return h.matches(), false
}

// failSize records that the text is too large.
func (r *ruleReader) failSize() {
	const want = "%s: a text may add at most %d rules and chains, or fewer with many matches"
	if r.header.lastList.raw != "" {
		r.fail(r.header.lastList, want, "lists of addresses that are disjoint, or shorter ones", maxRules)
		return
	}
	r.fail(r.parser.words[0], want, "fewer rules", maxRules)
}

// rangesOf returns the number of ranges of addresses in the matches.
func rangesOf(matches []rules.Match) int {
	n := 0
	for _, m := range matches {
		if addr, ok := m.(rules.MatchAddr); ok {
			n += len(addr.Ranges)
		}
	}
	return n
}

// mergeDisjoint returns a single match for the addresses of one side. It returns false if the
// addresses are not pairwise disjoint, or if an element of the list is negated, is a name, or means
// all addresses.
func mergeDisjoint(matches []rules.Match) ([]rules.Match, bool) {
	if len(matches) < 2 {
		return matches, true
	}
	var m rules.MatchAddr
	for _, single := range matches {
		addr, ok := single.(rules.MatchAddr)
		if !ok || addr.Not {
			return nil, false
		}
		m.Side = addr.Side
		m.Ranges = append(m.Ranges, addr.Ranges...)
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
