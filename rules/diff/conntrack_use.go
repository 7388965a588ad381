package diff

import (
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// withConntrack returns the packets that may traverse a NAT chain because conntrack is in use
// (NATNeedsConntrack). If no rule certainly enables conntrack for the family, it is unknown whether
// it is in use: an unknown expression of a rule, or something other than netfilter's rules, may
// enable it.
func (w *walk) withConntrack(c *rules.Chain) set {
	if w.usesConntrack || !c.HasEffect() {
		return all
	}
	return w.variable(variable{
		key: "conntrack in use" + w.conntrackUnknowns, kind: unknownBit,
		text: "whether conntrack is in use: no rule of the family is known to enable it",
	})
}

// conntrackUse reports whether a rule certainly makes the kernel enable conntrack for packets of
// the family. If no rule does, unknowns contains the texts of the unknown expressions, each of
// which may enable conntrack.
func conntrackUse(rs *rules.Ruleset, f rules.Family) (certain bool, unknowns string) {
	var texts []string
	readsConnection := inTuples(readsConntrack)
	for t, r := range rs.AllRules() {
		if !appliesTo(t, f) {
			continue
		}
		if enablesConntrack(r, f, readsConnection) {
			return true, ""
		}
		for m := range r.AllMatches() {
			if u, ok := m.(rules.Unknown); ok {
				texts = append(texts, keySeparator+u.Text)
			}
		}
	}
	slices.Sort(texts)
	return false, strings.Join(slices.Compact(texts), "")
}

// enablesConntrack reports whether the kernel certainly enables conntrack for packets of the family
// while the rule exists (calls of nf_ct_netns_get in net/netfilter). The table of the rule must
// apply to the family. In a table for both families, a translation of addresses enables conntrack
// only for the family of the new address. readsConnection is readsConntrack for matches and tuples.
func enablesConntrack(
	r *rules.Rule, f rules.Family, readsConnection func(rules.Match) bool,
) bool {
	if ruleHasMatch(r, readsConnection) {
		return true
	}
	return slices.ContainsFunc(r.Actions, func(a rules.Action) bool {
		switch a := a.(type) {
		case rules.RedirectTo, rules.SaveMark, rules.RestoreMark, rules.MixMark, rules.SetZone:
			return true
		case rules.DNATTo:
			return rules.FamilyOf(a.Addr) == f
		case rules.SNATTo:
			return rules.FamilyOf(a.Addr) == f
		case rules.DNATPort:
			return !isOfOtherFamily(r, f)
		case rules.Unknown:
			return a.Effect == rules.TranslatesSource && !isOfOtherFamily(r, f)
		}
		return false
	})
}

// readsConntrack reports whether a match makes the kernel enable conntrack, because it reads the
// connection.
func readsConntrack(m rules.Match) bool {
	switch m.(type) {
	case rules.MatchState, rules.MatchStatus, rules.MatchDirection:
		return true
	}
	return comparesConnectionMark(m)
}
