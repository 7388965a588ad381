package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// reassembly is the priority at which the kernel reassembles fragments at prerouting and output, if
// enabled: NF_IP_PRI_CONNTRACK_DEFRAG in linux/netfilter_ipv4.h.
const reassembly = -400

// MeetsFragments reports whether rules of the family that read ports, flags or ICMP types may be
// evaluated for fragments, which lack these fields. Decide compares whole packets: with conntrack
// or a transparent proxy, the kernel reassembles fragments before it evaluates rules
// (ConntrackReassembles). There are two exceptions: rules of a chain that runs before the
// reassembly, and untracked fragments that are sent over lo (UntrackedNotReassembled).
func MeetsFragments(rs *rules.Ruleset, family rules.Family) bool {
	reads, reassembles, early, untracks := false, false, false, false
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if !appliesTo(t, family) {
			continue
		}
		atOutput := slices.ContainsFunc(t.Chains, func(c rules.Chain) bool {
			return c.Base != nil && c.Base.Hook == rules.Output
		})
		for j := range t.Chains {
			c := &t.Chains[j]
			if c.Base != nil && c.Base.Position() <= reassembly && len(c.Rules) > 0 {
				early = true
			}
			for k := range c.Rules {
				untracks = untracks || atOutput &&
					slices.Contains(c.Rules[k].Actions, rules.Action(rules.Notrack{}))
				reads = reads || slices.ContainsFunc(c.Rules[k].Matches, readsTransport) ||
					slices.ContainsFunc(c.Rules[k].Actions, requiresTransport)
				reassembles = reassembles || usesConntrack(&c.Rules[k])
			}
		}
	}
	return reads && (early || untracks || !reassembles)
}

// requiresTransport reports whether an action may end the rule because of a field that only the
// first fragment has.
func requiresTransport(a rules.Action) bool {
	require, ok := a.(rules.Require)
	return ok && readsTransport(require.Match)
}

// readsTransport reports whether a match reads a field that only the first fragment has.
func readsTransport(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchPort, rules.MatchTCPFlags, rules.MatchICMP:
		return true
	case rules.MatchTuple:
		return tupleHas(m, readsTransport)
	}
	return false
}

// usesConntrack reports whether a rule makes the kernel enable conntrack or the reassembly of
// fragments.
func usesConntrack(r *rules.Rule) bool {
	if slices.ContainsFunc(r.Matches, readsConntrack) {
		return true
	}
	for _, a := range r.Actions {
		switch a := a.(type) {
		case rules.RedirectTo, rules.DNATPort, rules.DNATTo, rules.SNATTo, rules.TProxy,
			rules.TProxyDrop, rules.SaveMark, rules.RestoreMark, rules.MixMark, rules.SetZone:
			return true
		case rules.Require:
			if readsConntrack(a.Match) {
				return true
			}
		}
	}
	return false
}

// readsConntrack reports whether a match makes the kernel enable conntrack or reassembly, because
// it reads the connection or a transparent socket.
func readsConntrack(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchState, rules.MatchStatus, rules.MatchDirection:
		return true
	case rules.MatchSocket:
		// The socket expression of nft does not enable reassembly, unlike the match of xtables.
		return m.Kind != rules.NFTSocket
	case rules.MatchMark:
		return m.Conntrack
	case rules.MatchMarkRange:
		return m.Conntrack
	}
	return false
}
