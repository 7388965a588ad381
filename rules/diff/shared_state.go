package diff

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// A sharedState contains the effects of the rules on states that packets share: lists, labels and
// counters (see [rules.Unknown.State]).
//
// If a state is equal on both sides at first, it remains equal if both sides write to it in the
// same rules, in the same order, for the same packets. A condition on such a state has the same
// result in the same rule of both sides. Otherwise the state is differing, and the result of each
// condition on it is unknown.
type sharedState struct {
	// written contains the states that a rule of either side writes.
	written map[string]bool
	// differing contains the states that are known to be written differently by the sides. found
	// contains further such states, which the current comparison has found. The comparison assumes
	// that they are equal.
	differing, found map[string]bool
	// hasNAT contains the families for which the ruleset of either side has a NAT chain
	// (NATDropsRedirects).
	hasNAT map[rules.Family]bool
	// hasHelper reports that a rule of either side assigns a conntrack helper.
	hasHelper bool
}

// newSharedState returns the effects of the rules of all sides, before any comparison.
func newSharedState(sides ...*rules.Ruleset) sharedState {
	shared := sharedState{
		written: map[string]bool{}, differing: map[string]bool{}, found: map[string]bool{},
	}
	for _, rs := range sides {
		for _, f := range [...]rules.Family{rules.IPv4, rules.IPv6} {
			if hasNATChain(rs, f) {
				storeIn(&shared.hasNAT, f, true)
			}
		}
		for _, c := range rs.AllChains() {
			for state := range writtenIn(c) {
				shared.written[state] = true
			}
			shared.hasHelper = shared.hasHelper || slices.ContainsFunc(c.Rules, assignsHelper)
		}
	}
	return shared
}

// assignsHelper reports whether the rule assigns a conntrack helper.
func assignsHelper(r rules.Rule) bool {
	return slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
		zone, ok := a.(rules.SetZone)
		return ok && zone.Helper != ""
	})
}

// writtenIn returns the states that the rules of a chain write.
func writtenIn(c *rules.Chain) map[string]bool {
	written := map[string]bool{}
	for i := range c.Rules {
		for _, a := range c.Rules[i].Actions {
			if u, ok := a.(rules.Unknown); ok && (u.Effect == rules.ReadsAndWrites ||
				u.Effect == rules.Writes) {
				written[u.State] = true
			}
		}
	}
	return written
}

// differs reports whether a condition depends on a state that differs between the sides.
func (shared sharedState) differs(u rules.Unknown) bool {
	return shared.differing[u.State] || u.Ignores&rules.StateInput == 0 && len(shared.differing) > 0
}

// statesOf returns the states on which a condition depends and that rules write.
func (shared sharedState) statesOf(u rules.Unknown) []string {
	if u.Ignores&rules.StateInput == 0 {
		return slices.Sorted(maps.Keys(shared.written))
	}
	if shared.written[u.State] {
		return []string{u.State}
	}
	return nil
}

// addFound adds the found states to differing, and reports whether there are any.
func (shared sharedState) addFound() bool {
	for state := range shared.found {
		shared.differing[state] = true
	}
	found := len(shared.found) > 0
	clear(shared.found)
	return found
}

// compareOtherHooks adds, to found, the states that chains at hooks other than prerouting and
// output write, unless both sides have the same chains there. It omits connectionMarks if no rule
// at prerouting or output depends on the mark of a connection.
func (shared sharedState) compareOtherHooks(left, right *rules.Ruleset) {
	l, statesLeft := otherHooksText(left)
	r, statesRight := otherHooksText(right)
	if l == r {
		return
	}
	for _, states := range []map[string]bool{statesLeft, statesRight} {
		for state := range states {
			if state != connectionMarks || readsConnectionMark(left) || readsConnectionMark(right) {
				shared.found[state] = true
			}
		}
	}
}

// connectionMarks is the name of the state that contains the connection marks. Only chains at hooks
// that are not compared count as writers of this state.
const connectionMarks = "\x00connection marks"

// readsConnectionMark reports whether a rule at prerouting or output depends on the mark of a
// connection.
func readsConnectionMark(rs *rules.Ruleset) bool {
	found := false
	eachChainFrom(rs, isCompared, func(_ *rules.Table, c *rules.Chain) {
		found = found || slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.ContainsFunc(r.Matches, comparesConnectionMark) ||
				slices.ContainsFunc(r.Actions, usesConnectionMark)
		})
	})
	return found
}

// comparesConnectionMark reports whether a match depends on the mark of a connection.
func comparesConnectionMark(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchMark:
		return m.Conntrack
	case rules.MatchMarkRange:
		return m.Conntrack
	case rules.MatchTuple:
		return tupleHas(m, comparesConnectionMark)
	}
	return false
}

// usesConnectionMark reports whether an action depends on the mark of a connection.
func usesConnectionMark(a rules.Action) bool {
	switch a := a.(type) {
	case rules.RestoreMark:
		return true
	case rules.MixMark:
		return a.ConntrackMark != 0
	case rules.Require:
		return comparesConnectionMark(a.Match)
	}
	return false
}

// writesConnectionMark reports whether an action may change the mark of a connection.
func writesConnectionMark(a rules.Action) bool {
	switch a := a.(type) {
	case rules.SaveMark:
		return true
	case rules.MixMark:
		return a.Conntrack
	case rules.Unknown:
		return a.Effect == rules.WritesConntrackMark || a.Effect == rules.AnyEffect
	}
	return false
}

// otherHooksText returns the text of the chains at hooks other than prerouting and output, and the
// states that these chains write.
func otherHooksText(rs *rules.Ruleset) (string, map[string]bool) {
	text := new(strings.Builder)
	states := map[string]bool{}
	isOther := func(h rules.Hook) bool { return !isCompared(h) }
	eachChainFrom(rs, isOther, func(t *rules.Table, c *rules.Chain) {
		writeChain(text, t, c)
		for state := range writtenIn(c) {
			states[state] = true
		}
		for j := range c.Rules {
			if slices.ContainsFunc(c.Rules[j].Actions, writesConnectionMark) {
				states[connectionMarks] = true
			}
		}
	})
	return text.String(), states
}

// writeChain writes the text of a chain. The texts of two chains are equal only if the chains are.
// Therefore it quotes each part: names and unsupported parts, which the owner of a namespace can
// choose, may contain the text of other parts.
func writeChain(to *strings.Builder, t *rules.Table, c *rules.Chain) {
	fmt.Fprintf(to, "chain %s %q %q", t.Family, t.Name, c.Name)
	if c.Base != nil {
		fmt.Fprintf(to, " %s %d %t", c.Base.Hook, c.Base.Priority, c.Base.Drop)
	}
	for j := range c.Rules {
		r := &c.Rules[j]
		to.WriteString("\nrule")
		for _, m := range r.Matches {
			fmt.Fprintf(to, " %T %q", m, m)
		}
		for _, a := range r.Actions {
			fmt.Fprintf(to, " %T %q", a, a)
		}
		fmt.Fprintf(to, " %q", unknownData(r))
	}
	to.WriteString("\n")
}

// eachChainFrom calls fn once for each chain that packets may reach from base chains at the
// included hooks. It visits called chains before their callers.
func eachChainFrom(
	rs *rules.Ruleset, isIncluded func(rules.Hook) bool, fn func(*rules.Table, *rules.Chain),
) {
	for i := range rs.Tables {
		t := &rs.Tables[i]
		var from []*rules.Chain
		for j := range t.Chains {
			if b := t.Chains[j].Base; b != nil && isIncluded(b.Hook) {
				from = append(from, &t.Chains[j])
			}
		}
		for _, c := range t.ReachableFrom(from...) {
			fn(t, c)
		}
	}
}

// unknownData returns the data of the rule's unknown parts that its text does not contain.
func unknownData(r *rules.Rule) string {
	var data []string
	add := func(m any) {
		if u, ok := m.(rules.Unknown); ok {
			data = append(data, u.Data)
		}
	}
	for _, m := range r.Matches {
		add(m)
	}
	for _, a := range r.Actions {
		add(a)
		if required, ok := a.(rules.Require); ok {
			add(required.Match)
		}
	}
	return strings.Join(data, keySeparator)
}
