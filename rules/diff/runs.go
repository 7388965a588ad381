package diff

import "github.com/sluice-mesh/sluice/rules"

// A run is consecutive rules of a chain that can be applied as one, to the packets that any of them matches. Where iptables has a
// rule for each of ten thousand prefixes, this is what makes the decision fast.
type run struct{ first, behind int } // indices of rules

// guarded is a run and what its rules see.
type guarded struct {
	chain *rules.Chain
	first int
	view  view
}

// runsOf divides the rules of a chain into runs.
//
// Rules with equal actions are one rule for the union of their packets if a packet that one of them has matched is not changed by
// the others that match it too. That is so
//   - if the actions end the chain for every packet: no later rule of the run sees it;
//   - if they are a jump to a chain that changes no packet that comes back: all that do are as before, and the next rule of the run
//     sends them through the same chain again, with the same result.
//
// And what a rule matches must not depend on marks or unknown conditions, for then the union is not the same for all packets.
func (w *walk) runsOf(c rules.ChainRef) []run {
	if known, ok := w.runs[c.Chain]; ok {
		return known
	}
	runs := []run{}
	list := c.Chain.Rules
	for i := range list {
		if n := len(runs); n > 0 && w.joins(c.Table, &list[runs[n-1].first], &list[i]) {
			runs[n-1].behind = i + 1
			continue
		}
		runs = append(runs, run{i, i + 1})
	}
	w.runs[c.Chain] = runs
	return runs
}

// joins tells whether a rule can be one with the first of a run.
func (w *walk) joins(t *rules.Table, first, r *rules.Rule) bool {
	action := onlyEffect(first)
	return action != nil && action == onlyEffect(r) && onlyStatic(first) && onlyStatic(r) && w.onlyDecides(t, action)
}

// onlyEffect is the action of a rule that does one thing, beside counting.
func onlyEffect(r *rules.Rule) rules.Action {
	var effect rules.Action
	for _, a := range r.Actions {
		if _, counts := a.(rules.Count); counts {
			continue
		}
		if effect != nil {
			return nil
		}
		effect = a
	}
	return effect
}

// onlyStatic tells whether what the rule matches depends on nothing that rules change.
func onlyStatic(r *rules.Rule) bool {
	for _, m := range r.Matches {
		switch m.(type) {
		case rules.MatchMark, rules.Unknown:
			return false
		}
	}
	return true
}

// onlyDecides tells whether the action ends the chain, or is a jump from which every packet comes back as it was.
func (w *walk) onlyDecides(t *rules.Table, action rules.Action) bool {
	switch a := action.(type) {
	case rules.Verdict, rules.RedirectTo, rules.DNATPort, rules.TProxyDrop:
		return true
	case rules.Jump:
		target := t.Chain(a.Chain)
		return target != nil && w.changesNothing(t, target)
	}
	return false
}

// changesNothing tells whether every packet that comes back from the chain is as it was.
func (w *walk) changesNothing(t *rules.Table, c *rules.Chain) bool {
	if known, ok := w.harmless[c]; ok {
		return known
	}
	w.harmless[c] = false // in a circle of jumps
	for i := range c.Rules {
		for _, action := range c.Rules[i].Actions {
			if _, counts := action.(rules.Count); !counts && !w.onlyDecides(t, action) {
				return false
			}
		}
	}
	w.harmless[c] = true
	return true
}
