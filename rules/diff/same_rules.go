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

// rulesText returns a text of all rules that packets of the compared families may meet. ok is false
// if the text does not identify the rules.
func (d *decision) rulesText(rs *rules.Ruleset) (text string, ok bool) {
	var chains []string
	applies := func(t *rules.Table) bool {
		return slices.ContainsFunc(d.options.Families, func(f rules.Family) bool {
			return appliesTo(t, f)
		})
	}
	ok = true
	everyHook := func(rules.Hook) bool { return true }
	w := newRuleWriter(d.meter)
	isExternal := inTuples(readsExternalObject)
	eachChainFrom(rs, everyHook, func(t *rules.Table, c *rules.Chain) {
		if !applies(t) || c.Base != nil && !c.HasEffect() {
			return
		}
		chains = append(chains, w.chain(t, c))
		ok = ok && isKnown(c) && !chainHasMatch(c, isExternal)
	})
	slices.Sort(chains)
	for _, f := range d.options.Families {
		chains = append(chains, fmt.Sprint(f, " NAT ", hasNATChain(rs, f)))
	}
	order := new(strings.Builder)
	for hook := range rules.Ingress {
		writeOrder(order, slices.DeleteFunc(rs.BaseChains(hook), func(c rules.ChainRef) bool {
			return !applies(c.Table)
		}))
	}
	return strings.Join(append(chains, order.String()), "\n"), ok
}

// readsExternalObject reports whether a match depends on something that was not read, such as the
// elements of a set.
func readsExternalObject(m rules.Match) bool {
	_, isList := m.(rules.MatchListed)
	return isList || lacksData(m)
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
