package diff

import (
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A ruleWriter writes digests of rules, which are equal only if the rules are equal.
type ruleWriter struct {
	meter *meter
	text  strings.Builder // not added to a digest yet
	// ranges and tuples contain the digests of lists that several rules may share.
	ranges map[listKey[netipx.IPRange]]string
	tuples map[listKey[[]rules.Match]]string
}

func newRuleWriter(m *meter) *ruleWriter { return &ruleWriter{meter: m} }

// flush adds the text to a digest.
func (w *ruleWriter) flush(digest io.Writer) {
	w.meter.charge(w.text.Len())
	fmt.Fprint(digest, w.text.String())
	w.text.Reset()
}

// chain returns the digest of a chain of the table. It quotes each part of the text: names and
// unsupported parts, which the owner of a namespace can choose, may contain the text of other
// parts.
func (w *ruleWriter) chain(t *rules.Table, c *rules.Chain) string {
	digest := sha256.New()
	fmt.Fprintf(&w.text, "chain %s %q %q", t.Family, t.Name, c.Name)
	if b := c.Base; b != nil {
		fmt.Fprintf(&w.text, " %s %s %d %t", b.Type, b.Hook, b.Priority, b.Drop)
		if b.Position() == rules.ConntrackPriority && b.Hook != rules.Forward {
			fmt.Fprintf(&w.text, " before conntrack %t", b.Order < 0)
		}
	}
	for i := range c.Rules {
		w.writeRule(t, &c.Rules[i])
		w.flush(digest)
	}
	w.flush(digest)
	return string(digest.Sum(nil))
}

// writeRule writes a rule of the table.
func (w *ruleWriter) writeRule(t *rules.Table, r *rules.Rule) {
	w.text.WriteString("\nrule")
	for _, m := range r.Matches {
		w.writeMatch(m)
	}
	for _, a := range rules.Effective(r.Actions) {
		switch a := a.(type) {
		case rules.Require:
			w.text.WriteString(" required")
			w.writeMatch(a.Match)
		case rules.Unknown:
			w.writeMatch(a)
		default:
			fmt.Fprintf(&w.text, " %T %q", a, a)
		}
	}
	if slices.ContainsFunc(r.Matches, matchDependsOnBackend) ||
		slices.ContainsFunc(r.Actions, actionDependsOnBackend) {
		fmt.Fprint(&w.text, " ", t.XTables || r.XTables)
	}
}

// writeMatch writes a match, with the parts that [rules.Match.String] omits.
func (w *ruleWriter) writeMatch(m rules.Match) {
	switch m := m.(type) {
	case rules.MatchTuple:
		fmt.Fprintf(&w.text, " %T %t %q", m, m.Not, w.alternatives(m))
	case rules.MatchAddr:
		fmt.Fprintf(&w.text, " %T %q", m, m)
		if m.Set != "" {
			fmt.Fprintf(&w.text, " %q", w.elements(m))
		}
	case rules.MatchInterface, rules.MatchOwner, rules.MatchCgroup, rules.MatchListed, rules.Unknown:
		fmt.Fprintf(&w.text, " %#v", m)
	default:
		fmt.Fprintf(&w.text, " %T %q", m, m)
	}
}

// elements returns the digest of the addresses of a match.
func (w *ruleWriter) elements(m rules.MatchAddr) string {
	return cached(&w.ranges, keyOf(m.Ranges), func() string {
		w.meter.charge(textSteps * len(m.Ranges))
		w.meter.alloc(textEntrySize)
		digest := sha256.New()
		for _, r := range m.Ranges {
			fmt.Fprintf(digest, "%s ", r)
		}
		return string(digest.Sum(nil))
	})
}

// setElements returns a text of the elements of the named sets of a rule, which the text of the
// rule omits.
func (w *ruleWriter) setElements(r *rules.Rule) string {
	text := ""
	for m := range r.AllMatches() {
		if a, ok := m.(rules.MatchAddr); ok && a.Set != "" {
			text += w.elements(a)
		}
	}
	return text
}

// alternatives returns the digest of the alternatives of a tuple.
func (w *ruleWriter) alternatives(m rules.MatchTuple) string {
	return cached(&w.tuples, keyOf(m.Alternatives), func() string {
		w.meter.alloc(textEntrySize)
		inner := &ruleWriter{meter: w.meter, ranges: w.ranges, tuples: w.tuples}
		digest := sha256.New()
		for _, matches := range m.Alternatives {
			for _, match := range matches {
				inner.writeMatch(match)
			}
			inner.text.WriteString("\n")
			inner.flush(digest)
		}
		return string(digest.Sum(nil))
	})
}

// reachable returns the result of chains for the chains that packets may reach from base chains at
// the included hooks.
func (w *ruleWriter) reachable(
	rs *rules.Ruleset, families []rules.Family, isIncluded func(rules.Hook) bool,
	isUnread func(rules.Match) bool,
) (digests []string, order string, isComplete bool) {
	return w.chains(rs, reachableChains(rs, isIncluded), families, isIncluded, isUnread)
}

// chains returns the digests of the listed chains with an effect whose tables apply to one of the
// families, and a text of the order of the base chains at the included hooks. isComplete is false
// if chains with equal digests may differ, because a position is unknown or isUnread is true for a
// match.
func (w *ruleWriter) chains(
	rs *rules.Ruleset, list iter.Seq2[*rules.Table, *rules.Chain], families []rules.Family,
	isIncluded func(rules.Hook) bool, isUnread func(rules.Match) bool,
) (digests []string, order string, isComplete bool) {
	isComplete, isUnread = true, inTuples(isUnread)
	for t, c := range list {
		if !appliesToAny(t, families) || c.Base != nil && !c.HasEffect() {
			continue
		}
		w.meter.alloc(textEntrySize)
		digests = append(digests, w.chain(t, c))
		isComplete = isComplete && isKnown(c) && !chainHasMatch(c, isUnread)
	}
	var b strings.Builder
	for h := range rules.Ingress {
		if isIncluded(h) {
			writeOrder(&b, slices.DeleteFunc(rs.BaseChains(h), func(c rules.ChainRef) bool {
				return !appliesToAny(c.Table, families)
			}))
		}
	}
	return digests, b.String(), isComplete
}

// isKnown reports whether the chain contains everything that determines for which packets, and
// when, its rules are evaluated.
func isKnown(c *rules.Chain) bool {
	b := c.Base
	switch {
	case b == nil, b.Hook == rules.Forward: // conntrack does not run at forward
		return true
	case b.Hook == rules.Ingress: // the model lacks the interface of the chain
		return false
	case b.Hook == rules.Postrouting || b.Hook == rules.Input:
		return b.Position() != confirmationPriority // see mayFollowConfirmation
	}
	return b.Position() != rules.ConntrackPriority || b.Order != 0 // see mayPrecedeConntrack
}

// writeOrder writes the names of base chains, whose priorities may be equal, in the order of
// evaluation, and which chains at the position of NAT run after NAT. It omits chains without an
// effect.
func writeOrder(to *strings.Builder, chains []rules.ChainRef) {
	ranNAT := map[rules.Family]bool{} // by the family of the NAT chain's table
	for _, c := range chains {
		base := c.Chain.Base
		if base.Type == rules.NAT {
			ranNAT[c.Table.Family] = true
		}
		if !c.Chain.HasEffect() {
			continue
		}
		fmt.Fprintf(to, "\n%s", chainKey(c))
		if base.Type != rules.NAT && base.Position() == natPosition(base.Hook) {
			fmt.Fprint(to, " after NAT of ", ranNAT)
		}
	}
}

// lacksData reports whether a match is unsupported and depends on something that was not read.
func lacksData(m rules.Match) bool {
	u, ok := m.(rules.Unknown)
	return ok && strings.Contains(u.Data, rules.NoData)
}
