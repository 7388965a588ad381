package foreign

import (
	"slices"

	"github.com/sluice-mesh/sluice/compat"
	"github.com/sluice-mesh/sluice/rules"
)

// withoutFilters returns the live rules without the rules of the foreign base chains that only
// accept, drop and count packets. Such a chain drops a packet, or has no effect on it. If no packet
// bypasses the proxy with the result, none does with the live rules. withoutFilters also reports
// whether the result differs from the live rules. It does not change chains of type nat, which
// affect packets even if they have no rules.
func withoutFilters(live *compat.Live) (compat.Live, bool) {
	filtered := *live
	filtered.Ruleset.Tables = slices.Clone(live.Ruleset.Tables)
	isFilter := map[*rules.Base]bool{}
	for i := range filtered.Ruleset.Tables {
		t := &filtered.Ruleset.Tables[i]
		if compat.IsSluiceTable(t) {
			continue
		}
		original := t.Chains
		t.Chains = slices.Clone(original)
		for j := range original {
			c := &t.Chains[j]
			if c.Base != nil && c.Base.Type != rules.NAT && c.HasEffect() &&
				onlyFilters(&live.Ruleset.Tables[i], &original[j]) {
				c.Rules, c.Base = nil, new(*c.Base)
				c.Base.Drop = false
				isFilter[original[j].Base] = true
			}
		}
	}
	filtered.Ambiguous = withoutChains(live.Ambiguous, func(c rules.ChainRef) bool {
		return isFilter[c.Chain.Base]
	})
	return filtered, len(isFilter) > 0
}

// onlyFilters reports whether the rules of a base chain of the table only accept, drop and count
// packets.
func onlyFilters(t *rules.Table, c *rules.Chain) bool {
	return !slices.ContainsFunc(t.ReachableFrom(c), func(c *rules.Chain) bool {
		return slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
			return slices.ContainsFunc(r.Matches, mayWrite) ||
				slices.ContainsFunc(r.Actions, mayChange)
		})
	})
}

// mayChange reports whether the action may have an effect other than to accept, drop or count
// packets.
func mayChange(a rules.Action) bool {
	switch a := a.(type) {
	case rules.Verdict, rules.Jump, rules.Reject, rules.Count, rules.NoEffect:
		return false
	case rules.Require:
		return mayWrite(a.Match)
	case rules.Unknown:
		return mayWrite(a)
	}
	return true
}

// mayWrite reports whether the match may have a side effect.
func mayWrite(m rules.Match) bool {
	u, ok := m.(rules.Unknown)
	return ok && !u.Effect.IsCondition()
}

// affectedFamilies returns the families of the packets that may bypass the proxy. These are the
// families whose packets foreign rules may affect at the hooks that [diff.Bypass] evaluates, or
// both families if there are no rules of Sluice.
func affectedFamilies(live *compat.Live) []rules.Family {
	affected := map[rules.Family]bool{}
	usesNFT := hasSluiceTable(&live.Ruleset)
	if !hasSluiceRules(&live.Ruleset) {
		affected[rules.Inet] = true // another program has removed them since they were compared
	}
	for t, c := range live.Ruleset.AllChains() {
		switch {
		case len(c.Rules) == 0 || c.Base == nil || compat.IsSluiceTable(t):
		case c.Base.Hook == rules.Input || c.Base.Hook == rules.Forward: // see unknownAtInput
		case compat.IsLegacySluiceTable(t) && !usesNFT && jumpsOnlyToSluice(c):
		default:
			affected[t.Family] = true
		}
	}
	var families []rules.Family
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		if affected[f] || affected[rules.Inet] {
			families = append(families, f)
		}
	}
	return families
}

// masquerades reports whether a rule may translate the source of packets to an address that the
// kernel selects. The effect then depends on the addresses of the namespace ([diff.Options]).
func masquerades(live *compat.Live) bool {
	return live.Ruleset.HasAction(func(a rules.Action) bool {
		u, ok := a.(rules.Unknown)
		return ok && u.Effect == rules.TranslatesSource
	})
}

// installedRules returns Sluice's rules in iptables-legacy with the desired routing, or the desired
// ruleset if Sluice's table is in nf_tables, or if there are no rules of Sluice. The evaluation of
// rules that are equal on both sides is much faster than the evaluation of different rules with the
// same effect.
func installedRules(live, desired *rules.Ruleset) rules.Ruleset {
	if hasSluiceTable(live) || !hasSluiceRules(live) {
		return *desired
	}
	return rules.Ruleset{Tables: compat.InstalledLegacy(live), Routing: desired.Routing}
}

// hasSluiceRules reports whether a chain of Sluice, in nf_tables or in iptables-legacy, has rules.
func hasSluiceRules(live *rules.Ruleset) bool {
	for t, c := range live.AllChains() {
		isSluice := compat.IsSluiceTable(t) ||
			compat.IsLegacySluiceTable(t) && compat.IsSluiceChain(c.Name)
		if isSluice && len(c.Rules) > 0 {
			return true
		}
	}
	return false
}
