package nft

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// maxPreconditionValues bounds the number of values that precondition formats, and thereby the time
// of the call.
const maxPreconditionValues = 256

// precondition returns a hash of the conditions so far and of a text. Rules with equal
// preconditions evaluate the next condition for the same packets. The hash does not depend on the
// order of the conditions, because nft moves the condition on the protocol next to the port when it
// lists a rule. precondition returns [rules.NoData] if a condition depends on data that was not
// read. After an action, or if the conditions have more than maxPreconditionValues values, it
// returns a hash of the expressions.
func (d *ruleDecoder) precondition(text string) string {
	size := 0
	var conditions []string
	for _, m := range d.rule.Matches {
		u, isUnknown := m.(rules.Unknown)
		if isUnknown && u.Data == rules.NoData {
			return rules.NoData
		}
		f, isFamily := m.(rules.MatchFamily)
		if isFamily && impliesFamily(d.rule.Matches, f.Family) {
			continue
		}
		if size += valueCount(m); size > maxPreconditionValues {
			break
		}
		conditions = append(conditions, matchText(m))
	}
	if d.isIncomplete || d.hasActed || size > maxPreconditionValues {
		id := d.identity()
		if id != rules.NoData {
			id += text
		}
		return id
	}
	for _, p := range d.pending {
		if p.noData {
			return rules.NoData
		}
		conditions = append(conditions, p.text+" exists "+p.data)
	}
	slices.Sort(conditions)
	parts := append(slices.Compact(conditions), text)
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(parts, "\x00"))))
}

// impliesFamily reports whether a match of an address implies the family.
func impliesFamily(matches []rules.Match, f rules.Family) bool {
	return slices.ContainsFunc(matches, func(m rules.Match) bool {
		addr, ok := m.(rules.MatchAddr)
		return ok && addr.Family() == f
	})
}

// matchText returns a text that is equal only for equal matches. It omits the name of a set.
func matchText(m rules.Match) string {
	switch m := m.(type) {
	case rules.MatchAddr:
		return fmt.Sprint("address ", m.Side, m.Not, m.Ranges)
	case rules.MatchTuple:
		texts := []string{fmt.Sprint("tuple ", m.Not)}
		for _, matches := range m.Alternatives {
			for _, part := range matches {
				texts = append(texts, matchText(part))
			}
			texts = append(texts, ";")
		}
		return strings.Join(texts, " ")
	}
	return fmt.Sprintf("%#v", m)
}
