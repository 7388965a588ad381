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
	if slices.ContainsFunc(d.undecided, func(u Undecided) bool {
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
	everyHook := func(rules.Hook) bool { return true }
	chains, order, ok := newRuleWriter(d.meter).chains(rs, d.options.Families, everyHook,
		readsExternalObject)
	slices.Sort(chains)
	for _, f := range d.options.Families {
		chains = append(chains, fmt.Sprint(f, " NAT ", hasNATChain(rs, f)))
	}
	return strings.Join(append(chains, order), "\n"), ok
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
	switch m.(type) {
	case rules.MatchOwner, rules.MatchReversePath, rules.MatchTuple:
		return true
	}
	return comparesConnectionMark(m)
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
