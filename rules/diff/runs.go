package diff

import "github.com/sluice-mesh/sluice/rules"

// A run is consecutive rules of a chain that can be applied as one, to the packets that any of them
// matches. Where iptables has a rule for each of ten thousand prefixes, this is what makes the
// decision fast.
type run struct {
	first, behind int // indices of rules
	// static reports that what the rules match depends on nothing that rules change, acts that a
	// match may have an effect.
	static, acts bool
}

// guarded is a run and what its rules see.
type guarded struct {
	chain *rules.Chain
	first int
	view  view
}

// runsOf divides the rules of a chain into runs, and leaves out rules that do nothing.
//
// Rules with equal actions are one rule for the union of their packets if a packet that one of them
// has matched is not changed by the others that match it too. That is so
//   - if the actions end the chain for every packet: no later rule of the run sees it;
//   - if they do the same to a packet the second time as once, and nothing that the rules match depends on it;
//   - if they are a jump to a chain that changes no packet that comes back: all that do are as before, and the next rule of the run
//     sends them through the same chain again, with the same result.
//
// And what a rule matches must not depend on marks or unknown conditions, for then the union is not
// the same for all packets. In the space of one packet each rule is a run, since each that matches
// is a step.
func (w *walk) runsOf(c rules.ChainRef) []run {
	if known, ok := w.runs[c.Chain]; ok {
		return known
	}
	list := c.Chain.Rules
	runs := []run{}
	if w.one != nil {
		runs = make([]run, 0, len(list))
	}
	for i := range list {
		w.meter.work()
		if w.one == nil {
			if n := len(runs); n > 0 && runs[n-1].behind == i && w.joins(c.Table, &list[runs[n-1].first], &list[i]) {
				runs[n-1].behind = i + 1
				continue
			}
			if effects(&list[i]) == 0 && onlyConditions(&list[i]) {
				continue
			}
		}
		runs = append(runs, run{i, i + 1, w.onlyStatic(&list[i]), !onlyConditions(&list[i])})
	}
	w.meter.take(int64(cap(runs)) * 24)
	w.runs[c.Chain] = runs
	return runs
}

// effects counts the actions of a rule beside counting.
func effects(r *rules.Rule) int {
	n := 0
	for _, a := range r.Actions {
		if _, counts := a.(rules.Count); !counts {
			n++
		}
	}
	return n
}

// onlyConditions reports whether no match of the rule may have an effect.
func onlyConditions(r *rules.Rule) bool {
	for _, m := range r.Matches {
		if u, ok := m.(rules.Unknown); ok && !u.Effect.IsCondition() {
			return false
		}
	}
	return true
}

// joins reports whether a rule can be one with the first of a run.
func (w *walk) joins(t *rules.Table, first, r *rules.Rule) bool {
	action := onlyEffect(first)
	return action != nil && same(action, onlyEffect(r)) && w.onlyStatic(first) && w.onlyStatic(r) && w.joinable(t, action)
}

func same(a, b rules.Action) bool { return b != nil && rules.SameAction(a, b) }

// onlyEffect is the action of a rule that does one thing, beside counting.
func onlyEffect(r *rules.Rule) rules.Action {
	if effects(r) != 1 {
		return nil
	}
	for _, a := range r.Actions {
		if _, counts := a.(rules.Count); !counts {
			return a
		}
	}
	return nil
}

// onlyStatic reports whether what the rule matches depends on nothing that rules change.
func (w *walk) onlyStatic(r *rules.Rule) bool {
	for _, m := range r.Matches {
		if !w.matches.isStatic(m) {
			return false
		}
	}
	return true
}

// joinable reports whether rules that have only this action can be one.
func (w *walk) joinable(t *rules.Table, action rules.Action) bool {
	if a, ok := action.(rules.SetMark); ok {
		return a.Value&^a.Mask == 0
	}
	return w.onlyDecides(t, action)
}

// onlyDecides reports whether the action ends the chain, or is a jump from which every packet comes
// back as it was.
func (w *walk) onlyDecides(t *rules.Table, action rules.Action) bool {
	switch a := action.(type) {
	case rules.Verdict, rules.RedirectTo, rules.DNATPort, rules.DNATTo, rules.TProxyDrop, rules.Reject:
		return true
	case rules.Jump:
		target := w.chainOf(t, a.Chain)
		return target != nil && w.changesNothing(t, target)
	}
	return false
}

// changesNothing reports whether every packet that comes back from the chain is as it was, and its
// way depends on nothing but what it is.
func (w *walk) changesNothing(t *rules.Table, c *rules.Chain) bool {
	if known, ok := w.harmless[c]; ok {
		return known
	}
	put(&w.harmless, c, false) // in a circle of jumps
	for i := range c.Rules {
		w.meter.work()
		for _, m := range c.Rules[i].Matches {
			if !w.matches.isStatic(m) {
				return false
			}
		}
		for _, action := range c.Rules[i].Actions {
			if _, counts := action.(rules.Count); !counts && !w.onlyDecides(t, action) {
				return false
			}
		}
	}
	w.harmless[c] = true
	return true
}

// chainOf finds a chain of the table by its name; nil if it has none.
func (w *walk) chainOf(t *rules.Table, name string) *rules.Chain {
	index, ok := w.chains[t]
	if !ok {
		index = make(map[string]*rules.Chain, len(t.Chains))
		for i := range t.Chains {
			w.meter.work()
			index[t.Chains[i].Name] = &t.Chains[i]
		}
		w.meter.take(int64(len(index)) * 64)
		put(&w.chains, t, index)
	}
	return index[name]
}
