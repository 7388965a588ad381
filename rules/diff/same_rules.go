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
	return ok && rightOK && left == right && d.sameRouting()
}

// sameRouting reports whether the routing of both sides is equal, or unknown for one side.
func (d *decision) sameRouting() bool {
	return !d.left.RoutingKnown || !d.right.RoutingKnown ||
		len(compareRouting(d.left.Ruleset.Routing, d.right.Ruleset.Routing)) == 0
}

// rulesText returns a text of all rules that packets of the compared families may meet. ok is false
// if the text does not identify the rules.
func (d *decision) rulesText(rs *rules.Ruleset) (text string, ok bool) {
	chains, order, ok := newRuleWriter(d.meter).reachable(rs, d.options.Families, everyHook,
		readsExternalObject)
	return joinRules(rs, chains, order, d.options.Families), ok
}

// joinRules returns a text of the results of [ruleWriter.chains], and of the existence of NAT
// chains.
func joinRules(
	rs *rules.Ruleset, chains []string, order string, families []rules.Family,
) string {
	slices.Sort(chains)
	for _, f := range families {
		chains = append(chains, fmt.Sprint(f, " NAT ", hasNATChain(rs, f)))
	}
	return strings.Join(append(chains, order), "\n")
}

func everyHook(rules.Hook) bool { return true }

// identicalSides reports whether the rulesets of both sides are equal, so that they treat every
// packet alike: the outcome of a packet is a function of the rules, the packet, random numbers, and
// states that earlier packets have left. Decide assumes that these states are equal at first, and
// equal rules change them in the same way.
//
// This requires more than sameRules, because no evaluation confirms it. All chains are equal, also
// chains that no packet reaches, because a rule in such a chain can enable conntrack
// (NATNeedsConntrack). The order of base chains and conntrack is known. Nothing on which a rule
// depends was omitted when the rules were read, such as the seed of a hash. The kernel accepts all
// jumps. A set that rules change counts as a state, unless an unsupported action, such as a queue
// to a program, may change it.
func (d *decision) identicalSides() bool {
	left, ok := d.rulesetText(d.sides.Left)
	if !ok || !d.sameRouting() {
		return false
	}
	right, ok := d.rulesetText(d.sides.Right)
	return ok && left == right
}

// rulesetText returns a text of all chains of a ruleset. ok is false if the text does not identify
// the effect of the rules.
func (d *decision) rulesetText(rs *rules.Ruleset) (text string, ok bool) {
	isUnread := lacksData
	if hasMatch(rs, mayHaveAnyEffect) {
		isUnread = readsExternalObject
	}
	chains, order, ok := newRuleWriter(d.meter).chains(rs, rs.AllChains(), bothFamilies, everyHook,
		isUnread)
	for i := range rs.Tables {
		ok = ok && acceptsJumps(&rs.Tables[i])
	}
	return joinRules(rs, chains, order, bothFamilies), ok
}

// mayHaveAnyEffect reports whether a match is an unsupported expression that may have any effect.
func mayHaveAnyEffect(m rules.Match) bool {
	u, ok := m.(rules.Unknown)
	return ok && u.Effect == rules.AnyEffect
}

// acceptsJumps reports whether all jumps of a table lead to its chains, and no jumps form a cycle.
// The kernel rejects other tables.
func acceptsJumps(t *rules.Table) bool {
	byName := make(map[string]*rules.Chain, len(t.Chains))
	for i := range t.Chains {
		byName[t.Chains[i].Name] = &t.Chains[i]
	}
	const entered, accepted = 1, 2
	progress := map[*rules.Chain]int{}
	var visit func(c *rules.Chain) bool
	visit = func(c *rules.Chain) bool {
		if c == nil || progress[c] == entered {
			return false
		}
		if progress[c] == accepted {
			return true
		}
		progress[c] = entered
		isRejected := func(a rules.Action) bool {
			jump, ok := a.(rules.Jump)
			return ok && !visit(byName[jump.Chain])
		}
		if c.HasAction(isRejected) {
			return false
		}
		progress[c] = accepted
		return true
	}
	for i := range t.Chains {
		if !visit(&t.Chains[i]) {
			return false
		}
	}
	return true
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
