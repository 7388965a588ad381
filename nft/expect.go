package nft

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// An expectation recognizes the unchanged rules of a table without decoding them. The kernel dumps
// the expressions of a rule as the bytes that were sent. Therefore rules with equal bytes are
// equal. Rules with other bytes are decoded.
type expectation struct {
	table   *rules.Table // nil without an expectation
	encoder encoder
	// recognized and unrecognized count the rules of the last read, in all tables.
	recognized, unrecognized int
	// hits is the counter of the last rule that equals has compared.
	hits rules.Hits
}

// newExpectation returns an expectation of the rules of the table, or of no rules if t is nil.
func newExpectation(t *rules.Table) *expectation {
	x := &expectation{table: t, encoder: encoder{table: t}}
	x.encoder.asDumped = true
	return x
}

// reset clears the counts for another read.
func (x *expectation) reset() { x.recognized, x.unrecognized = 0, 0 }

// isMet reports whether the table that was read has exactly the expected chains and rules, no
// unused sets, and no owner.
func (x *expectation) isMet(found *foundTable) bool {
	expected := 0
	for i := range x.table.Chains {
		c := &x.table.Chains[i]
		expected += len(c.Rules)
		if !sameAttachment(c, found.Chain(c.Name)) {
			return false
		}
	}
	return x.unrecognized == 0 && x.recognized == expected && !found.Owned &&
		len(found.Chains) == len(x.table.Chains) && len(found.UnusedSets) == 0
}

// recognize returns the next rule of a chain, without its comment, if it equals the expected rule
// at the same position. Otherwise it returns false.
func (x *expectation) recognize(
	t *foundTable, c *rules.Chain, sets decodedSets, a attributes,
) (rules.Rule, bool) {
	r := x.next(t, c)
	if r == nil || !x.equals(r, sets, a.Get(unix.NFTA_RULE_EXPRESSIONS)) {
		x.unrecognized++
		return rules.Rule{}, false
	}
	x.recognized++
	handle := rules.Handle(a.Number64(unix.NFTA_RULE_HANDLE))
	return rules.Rule{
		Matches: r.Matches, Actions: r.Actions, Handle: handle, Hits: x.hits,
	}, true
}

// next returns the expected rule at the next position of the chain, or nil.
func (x *expectation) next(t *foundTable, c *rules.Chain) *rules.Rule {
	if x.table == nil || x.table.Family != t.Family || x.table.Name != t.Name {
		return nil
	}
	expected := x.table.Chain(c.Name)
	if expected == nil || len(c.Rules) >= len(expected.Rules) {
		return nil
	}
	if c.Rules == nil {
		c.Rules = make([]rules.Rule, 0, len(expected.Rules))
	}
	return &expected.Rules[len(c.Rules)]
}

// equals reports whether the expressions equal the encoded rule, regardless of the value of its
// counter. It stores this value in hits.
func (x *expectation) equals(r *rules.Rule, sets decodedSets, expressions attributes) bool {
	if checkRule(r) != nil {
		return false
	}
	if x.hits = (rules.Hits{}); r.Counts() {
		x.hits = counterHits(expressions)
		counted := *r
		counted.Hits = x.hits
		r = &counted
	}
	var refs []setRef
	if slices.ContainsFunc(r.Matches, needsSet) {
		var ok bool
		if refs, ok = lookedUpSets(r, sets, expressions); !ok {
			return false
		}
	}
	x.encoder.buf = x.encoder.buf[:0]
	err := x.encoder.writeExpressions(r, refs)
	return err == nil && bytes.Equal(x.encoder.buf, expressions)
}

// lookedUpSets returns references to the sets that the expressions look up for the matches of the
// rule. It returns false if the contents of the sets differ from the matches. The names are from
// the expressions, because the kernel chooses the names of anonymous sets.
func lookedUpSets(r *rules.Rule, sets decodedSets, expressions attributes) ([]setRef, bool) {
	var lookups []string
	expressions.Each(func(_ uint16, value []byte) {
		if e := attributes(value); e.HasText(unix.NFTA_EXPR_NAME, "lookup") {
			lookups = append(lookups,
				attributes(e.Get(unix.NFTA_EXPR_DATA)).Text(unix.NFTA_LOOKUP_SET))
		}
	})
	refs := make([]setRef, len(r.Matches))
	for i, m := range r.Matches {
		if !needsSet(m) {
			continue
		}
		if len(lookups) == 0 || !sets[lookups[0]].equalsMatch(m, lookups[0]) {
			return nil, false
		}
		refs[i], lookups = setRef{name: lookups[0]}, lookups[1:]
	}
	return refs, len(lookups) == 0
}

// equalsMatch reports whether the set has the values of a match and, if the match refers to a named
// set, that name. The set may be nil.
func (s *decodedSet) equalsMatch(m rules.Match, name string) bool {
	if s == nil || s.unsupportedReason != "" {
		return false
	}
	if addr, ok := m.(rules.MatchAddr); ok {
		isNamed := addr.Set != ""
		if isNamed && name != addr.Set || isNamed == s.anonymous {
			return false
		}
		return slices.Equal(s.addrRanges(), addr.Ranges) &&
			s.size() == addrElementCount(addr.Ranges)
	}
	expected := newSet(m)
	if s.loadStatic() != nil || s.catchall != nil || s.hasSeveralFields() || !s.anonymous {
		return false // not a set that the encoder creates
	}
	if s.interval != expected.interval || len(s.elements) != len(expected.elements) {
		return false
	}
	s.sort()
	slices.SortFunc(expected.elements, compareElements)
	equal := func(a, b element) bool { return compareElements(a, b) == 0 }
	return slices.EqualFunc(s.elements, expected.elements, equal)
}
