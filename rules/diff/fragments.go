package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// reassemblyPriority is the priority at which the kernel reassembles fragments at prerouting and
// output, if reassembly is enabled: NF_IP_PRI_CONNTRACK_DEFRAG in linux/netfilter_ipv4.h.
const reassemblyPriority = -400

// MeetsFragments reports whether rules of the family that read ports, flags or ICMP types may be
// evaluated for fragments, which lack these fields. Decide compares whole packets: with conntrack
// or a transparent proxy, the kernel reassembles fragments before it evaluates rules
// (ConntrackReassembles). There are two exceptions: rules of a chain that runs before the
// reassembly, and untracked fragments that are sent over lo (UntrackedNotReassembled).
func MeetsFragments(rs *rules.Ruleset, family rules.Family) bool {
	readsFields, reassembles, runsEarly, untracks := false, false, false, false
	readsConnection, readsField := inTuples(readsConntrack), inTuples(readsTransport)
	for i := range rs.Tables {
		t := &rs.Tables[i]
		if !appliesTo(t, family) {
			continue
		}
		hasOutput, hasNotrack := false, false
		for j := range t.Chains {
			c := &t.Chains[j]
			hasOutput = hasOutput || c.Base != nil && c.Base.Hook == rules.Output
			hasNotrack = hasNotrack || c.HasAction(isAction[rules.Notrack])
			readsFields = readsFields || chainHasMatch(c, readsField)
			runsEarly = runsEarly || c.Base != nil && c.Base.Position() <= reassemblyPriority &&
				len(c.Rules) > 0
			reassembles = reassembles || slices.ContainsFunc(c.Rules, func(r rules.Rule) bool {
				return enablesReassembly(&r, family, readsConnection)
			})
		}
		untracks = untracks || hasOutput && hasNotrack
	}
	return readsFields && (runsEarly || untracks || !reassembles)
}

// readsTransport reports whether a match reads a field that only the first fragment has.
func readsTransport(m rules.Match) bool {
	switch m.(type) {
	case rules.MatchPort, rules.MatchTCPFlags, rules.MatchICMP:
		return true
	}
	return false
}

// enablesReassembly reports whether a rule makes the kernel reassemble fragments of the family,
// because it enables conntrack or looks up a transparent socket (readsConnection: see
// enablesConntrack).
func enablesReassembly(
	r *rules.Rule, f rules.Family, readsConnection func(rules.Match) bool,
) bool {
	return enablesConntrack(r, f, readsConnection) || ruleHasMatch(r, findsSocket) ||
		slices.ContainsFunc(r.Actions, isTProxy)
}

// findsSocket reports whether a match looks up a socket as xtables does. The socket expression of
// nft does not enable reassembly, unlike the match of xtables.
func findsSocket(m rules.Match) bool {
	socket, ok := m.(rules.MatchSocket)
	return ok && socket.Kind != rules.NFTSocket
}
