package diff

import (
	"iter"
	"maps"
	"slices"

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
	// differing contains the states that the sides are known to write differently. found contains
	// further such states, which the current comparison has found, but which it assumes to be
	// equal.
	differing, found map[string]bool
	// hasNAT contains the families for which the ruleset of either side has a NAT chain
	// (NATDropsRedirects, TranslationNeedsNATChain).
	hasNAT map[rules.Family]bool
	// hasHelper reports that a rule of either side assigns a conntrack helper, and sendsResets that
	// a rule of either side may send TCP resets.
	hasHelper, sendsResets bool
	// listeners is the result of listenersOf for all sides.
	listeners []tproxyTarget
}

// newSharedState returns the effects of the rules of all sides, before any comparison.
func newSharedState(sides ...*rules.Ruleset) sharedState {
	shared := sharedState{
		written: map[string]bool{}, differing: map[string]bool{}, found: map[string]bool{},
		listeners: listenersOf(sides...),
	}
	for _, rs := range sides {
		shared.sendsResets = shared.sendsResets || sendsResets(rs)
		for _, f := range bothFamilies {
			if hasNATChain(rs, f) {
				storeIn(&shared.hasNAT, f, true)
			}
		}
		for _, c := range rs.AllChains() {
			maps.Copy(shared.written, writtenIn(c))
			shared.hasHelper = shared.hasHelper || c.HasAction(assignsHelper)
		}
	}
	return shared
}

// assignsHelper reports whether the action assigns a conntrack helper.
func assignsHelper(a rules.Action) bool {
	zone, ok := a.(rules.SetZone)
	return ok && zone.Helper != ""
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
	maps.Copy(shared.differing, shared.found)
	found := len(shared.found) > 0
	clear(shared.found)
	return found
}

// compareOtherHooks adds, to found, the states that chains at hooks other than prerouting and
// output write, unless both sides have the same chains there. It omits connectionMarks if no rule
// at a hook that is evaluated depends on the mark of a connection.
func (shared sharedState) compareOtherHooks(left, right *rules.Ruleset, m *meter) {
	w := newRuleWriter(m)
	l, lOrder, lComplete := w.reachable(left, bothFamilies, isOtherHook, lacksData)
	r, rOrder, rComplete := w.reachable(right, bothFamilies, isOtherHook, lacksData)
	if !lComplete || !rComplete || !slices.Equal(l, r) || lOrder != rOrder {
		addOtherStates(shared.found, left, right)
	}
}

// addDependentStates adds, to differing, the states that chains at hooks other than prerouting and
// output write, if a condition there depends on a state that differs between the sides.
func (shared sharedState) addDependentStates(left, right *rules.Ruleset) {
	differs := inTuples(func(m rules.Match) bool {
		switch m := m.(type) {
		case rules.Unknown:
			return shared.differs(m)
		case rules.MatchListed:
			return shared.differing[m.State]
		}
		return false
	})
	for _, rs := range [...]*rules.Ruleset{left, right} {
		for _, c := range reachableChains(rs, isOtherHook) {
			if chainHasMatch(c, differs) {
				addOtherStates(shared.differing, left, right)
				return
			}
		}
	}
}

// addOtherStates adds the states that chains at hooks other than prerouting and output write. It
// omits connectionMarks if no rule at a hook that is evaluated depends on the mark of a connection.
func addOtherStates(to map[string]bool, left, right *rules.Ruleset) {
	writesMarks := false
	for _, rs := range [...]*rules.Ruleset{left, right} {
		for _, c := range reachableChains(rs, isOtherHook) {
			maps.Copy(to, writtenIn(c))
			writesMarks = writesMarks || c.HasAction(writesConnectionMark)
		}
	}
	if writesMarks && (readsConnectionMark(left) || readsConnectionMark(right)) {
		to[connectionMarks] = true
	}
}

// isOtherHook reports whether only some packets of the hook are evaluated, or none. Packets that
// the host forwards are not evaluated at postrouting.
func isOtherHook(h rules.Hook) bool { return !isCompared(h) }

// connectionMarks is the name of the state that contains the connection marks. Only chains at hooks
// that are not compared count as writers of this state.
const connectionMarks = "\x00connection marks"

// readsConnectionMark reports whether a rule at a hook that is evaluated may depend on the mark of
// a connection.
func readsConnectionMark(rs *rules.Ruleset) bool {
	mayRead := inTuples(func(m rules.Match) bool {
		u, ok := m.(rules.Unknown)
		return ok && mayReadConnectionMark(u) || comparesConnectionMark(m)
	})
	for r := range evaluatedRules(rs, bothFamilies) {
		if ruleHasMatch(r, mayRead) || slices.ContainsFunc(r.Actions, usesConnectionMark) {
			return true
		}
	}
	return false
}

// comparesConnectionMark reports whether a match compares the mark of a connection.
func comparesConnectionMark(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchMark:
		return m.Conntrack
	case rules.MatchMarkRange:
		return m.Conntrack
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
	}
	return false
}

// mayReadConnectionMark reports whether an unsupported expression may depend on the mark of a
// connection. A source translation does not count, because its name represents all its inputs (see
// translationName).
func mayReadConnectionMark(u rules.Unknown) bool {
	return u.Ignores&rules.ConntrackMarkInput == 0 && u.Effect != rules.ReadsVarying &&
		u.Effect != rules.TranslatesSource
}

// writesConnectionMark reports whether an action may change the mark of a connection.
func writesConnectionMark(a rules.Action) bool {
	u, ok := a.(rules.Unknown)
	return savesMark(a) ||
		ok && (u.Effect == rules.WritesConntrackMark || u.Effect == rules.AnyEffect)
}

// reachableChains returns the chains of all tables that packets may reach from base chains at the
// included hooks.
func reachableChains(
	rs *rules.Ruleset, isIncluded func(rules.Hook) bool,
) iter.Seq2[*rules.Table, *rules.Chain] {
	return func(yield func(*rules.Table, *rules.Chain) bool) {
		for i := range rs.Tables {
			for _, c := range reachable(&rs.Tables[i], isIncluded) {
				if !yield(&rs.Tables[i], c) {
					return
				}
			}
		}
	}
}
