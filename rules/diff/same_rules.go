package diff

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// This file recognizes rulesets with the same rules. Two such rulesets treat every packet alike,
// whatever the effect of their unsupported actions is.

// sameRules reports whether both sides have the same rules in the same order, and no rule depends
// on something that was not read. It is false if packets reach a jump that the kernel would reject.
func (d *decision) sameRules() bool {
	if slices.ContainsFunc(d.result.Undecided, func(u Undecided) bool {
		return strings.HasPrefix(u.Text, "jump ") || strings.HasPrefix(u.Text, "goto ")
	}) {
		return false
	}
	left, ok := d.rulesText(d.sides.Left)
	right, rightOK := d.rulesText(d.sides.Right)
	return ok && rightOK && left == right && (!d.left.RoutingKnown || !d.right.RoutingKnown ||
		len(compareRouting(d.left.Ruleset.Routing, d.right.Ruleset.Routing)) == 0)
}

// rulesText returns the text of all rules that packets of the compared families may meet. ok is
// false if the text does not identify the rules.
func (d *decision) rulesText(rs *rules.Ruleset) (text string, ok bool) {
	var chains []string
	applies := func(t *rules.Table) bool {
		return slices.ContainsFunc(d.options.Families, func(f rules.Family) bool {
			return appliesTo(t, f)
		})
	}
	ok = true
	everyHook := func(rules.Hook) bool { return true }
	eachChainFrom(rs, everyHook, func(t *rules.Table, c *rules.Chain) {
		if !applies(t) || c.Base != nil && idle(c) {
			return
		}
		b := new(strings.Builder)
		writeChain(b, t, c)
		if c.Base != nil {
			fmt.Fprint(b, c.Base.Type)
			ok = ok && c.Base.Hook != rules.Ingress // the model lacks the interface of the chain
		}
		for i := range c.Rules {
			r := &c.Rules[i]
			if slices.ContainsFunc(r.Matches, matchDependsOnBackend) ||
				slices.ContainsFunc(r.Actions, actionDependsOnBackend) {
				fmt.Fprint(b, " ", t.XTables || r.XTables)
			}
			ok = ok && !readsExternalObject(r)
		}
		chains = append(chains, b.String())
		d.meter.charge(b.Len())
	})
	slices.Sort(chains)
	for _, f := range d.options.Families {
		chains = append(chains, fmt.Sprint(f, " NAT ", hasNATChain(rs, f)))
	}
	var order []string // of the base chains, because their priorities may be equal
	for hook := range rules.Ingress {
		for _, c := range rs.BaseChains(hook) {
			if applies(c.Table) && !idle(c.Chain) {
				order = append(order,
					fmt.Sprintf("%s %q %q", c.Table.Family, c.Table.Name, c.Chain.Name))
			}
		}
	}
	return strings.Join(append(chains, order...), "\n"), ok
}

// readsExternalObject reports whether a rule depends on something that was not read, such as the
// elements of a set.
func readsExternalObject(r *rules.Rule) bool {
	if strings.Contains(unknownData(r), rules.NoData) {
		return true
	}
	isList := func(m rules.Match) bool {
		switch m := m.(type) {
		case rules.MatchListed:
			return true
		case rules.MatchTuple:
			return m.UsesUnknown()
		}
		return false
	}
	return slices.ContainsFunc(r.Matches, isList) ||
		slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
			required, ok := a.(rules.Require)
			return ok && isList(required.Match)
		})
}

// matchDependsOnBackend reports whether a match may have another result as an expression of
// nf_tables than as an extension of xtables.
func matchDependsOnBackend(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchOwner, rules.MatchReversePath, rules.MatchTuple:
		return true
	case rules.MatchMark:
		return m.Conntrack
	case rules.MatchMarkRange:
		return m.Conntrack
	}
	return false
}

// actionDependsOnBackend reports whether an action may have another effect as an expression of
// nf_tables than as a target of xtables.
func actionDependsOnBackend(a rules.Action) bool {
	switch a := a.(type) {
	case rules.SaveMark, rules.RestoreMark, rules.MixMark, rules.SetZone, rules.Notrack,
		rules.TProxy, rules.TProxyDrop:
		return true
	case rules.Require:
		return matchDependsOnBackend(a.Match)
	}
	return false
}
