package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Consecutive rules with the same action are evaluated as one rule that matches the union of their
// packets. This keeps Decide fast where iptables needs a rule for each of ten thousand prefixes:
// one union and one action instead of ten thousand.
//
// Merging is correct only if evaluating the merged rule once has the effect of evaluating its rules
// one after the other: a rule of the run must not change the effect of later rules on packets that
// it has matched. That holds for three kinds of actions:
//
//   - Actions that end the evaluation of the chain: no later rule of the run sees the packet.
//   - Idempotent actions: a second execution changes nothing.
//   - Jumps to a pure chain, which does not modify the packets that it returns: the next rule of
//     the run would send the packet through the same chain again, with the same result.
//
// In addition, no match of a run may depend on state that rules modify, such as marks: the union
// must be one fixed set of packets.

// A run is a range of rules of a chain that are evaluated as one.
type run struct {
	first, end int // indices of rules; end is exclusive
	// isStatic reports that the matches do not depend on state that rules modify.
	isStatic bool
	// hasSideEffects reports that a match may have a side effect.
	hasSideEffects bool
}

// A runSetKey identifies a run, by its first rule, and the view of its packets.
type runSetKey struct {
	chain *rules.Chain
	first int
	view  view
}

// runsOf divides the rules of a chain into runs. It omits rules that affect no packets and have no
// side effect. In the space of one packet, each rule is a run, because each matching rule is a step
// of the explanation.
func (w *walk) runsOf(c rules.ChainRef) []run {
	if known, ok := w.runs[c.Chain]; ok {
		return known
	}
	list := c.Chain.Rules
	runs := []run{}
	if w.single != nil {
		runs = make([]run, 0, len(list))
	}
	for i := range list {
		w.meter.step()
		if w.single == nil {
			if n := len(runs); n > 0 && runs[n-1].end == i &&
				w.canMerge(c.Table, &list[runs[n-1].first], &list[i]) {
				runs[n-1].end = i + 1
				continue
			}
			affectsPackets := slices.ContainsFunc(list[i].Actions, rules.AffectsPackets)
			if !affectsPackets && !hasSideEffects(&list[i]) {
				continue
			}
		}
		runs = append(runs, run{i, i + 1, w.hasStaticMatches(&list[i]), hasSideEffects(&list[i])})
	}
	w.meter.alloc(int64(cap(runs)) * runSize)
	w.runs[c.Chain] = runs
	return runs
}

// runSize is the size of a run in bytes.
const runSize = 24

// hasSideEffects reports whether a match of the rule may have a side effect.
func hasSideEffects(r *rules.Rule) bool {
	return slices.ContainsFunc(r.Matches, func(m rules.Match) bool {
		u, ok := m.(rules.Unknown)
		return ok && !u.Effect.IsCondition()
	})
}

// canMerge reports whether a rule can be merged into a run that begins with first.
func (w *walk) canMerge(t *rules.Table, first, r *rules.Rule) bool {
	action, other := singleAction(first), singleAction(r)
	return action != nil && other != nil && first.XTables == r.XTables &&
		rules.SameAction(action, other) && w.hasStaticMatches(first) &&
		w.hasStaticMatches(r) && w.isMergeable(t, action)
}

// singleAction returns the only action of a rule except counters; nil if it has none or several.
func singleAction(r *rules.Rule) rules.Action {
	var single rules.Action
	for _, a := range r.Actions {
		if rules.AffectsPackets(a) {
			if single != nil {
				return nil
			}
			single = a
		}
	}
	return single
}

// hasStaticMatches reports whether no match of the rule depends on state that rules modify.
func (w *walk) hasStaticMatches(r *rules.Rule) bool {
	return !slices.ContainsFunc(r.Matches, func(m rules.Match) bool { return !w.matches.isStatic(m) })
}

// isMergeable reports whether rules that have only this action can be merged.
func (w *walk) isMergeable(t *rules.Table, action rules.Action) bool {
	if a, ok := action.(rules.SetMark); ok {
		// The mark becomes mark&^Mask ^ Value: idempotent if Value has only bits that Mask clears.
		return a.Value&^a.Mask == 0
	}
	return w.isTerminalOrPureJump(t, action)
}

// isTerminalOrPureJump reports whether the action ends the evaluation of the chain, or is a jump to
// a pure chain.
func (w *walk) isTerminalOrPureJump(t *rules.Table, action rules.Action) bool {
	switch a := action.(type) {
	case rules.Verdict, rules.RedirectTo, rules.DNATPort, rules.DNATTo, rules.SNATTo,
		rules.TProxyDrop, rules.Reject:
		return true
	case rules.Jump:
		target := w.chainOf(t, a.Chain)
		return target != nil && w.isPure(t, target)
	}
	return false
}

// isPure reports whether the chain does not modify the packets that it returns, and its matches do
// not depend on state that rules modify.
func (w *walk) isPure(t *rules.Table, c *rules.Chain) bool {
	if known, ok := w.pureChains[c]; ok {
		return known
	}
	storeIn(&w.pureChains, c, false) // ends the recursion if jumps form a cycle
	for i := range c.Rules {
		w.meter.step()
		if !w.hasStaticMatches(&c.Rules[i]) {
			return false
		}
		for _, action := range c.Rules[i].Actions {
			if rules.AffectsPackets(action) && !w.isTerminalOrPureJump(t, action) {
				return false
			}
		}
	}
	w.pureChains[c] = true
	return true
}

// chainOf returns the chain of the table with a name, or nil if there is none.
func (w *walk) chainOf(t *rules.Table, name string) *rules.Chain {
	return cached(&w.chains, t, func() map[string]*rules.Chain {
		index := make(map[string]*rules.Chain, len(t.Chains))
		for i := range t.Chains {
			w.meter.step()
			index[t.Chains[i].Name] = &t.Chains[i]
		}
		w.meter.alloc(int64(len(index)) * entrySize)
		return index
	})[name]
}
