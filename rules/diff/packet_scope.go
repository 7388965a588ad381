package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// A packetScope selects the rare packets to include in a comparison.
type packetScope struct {
	// withoutAddress selects only packets whose interface has no address, so that a redirection at
	// prerouting drops them.
	withoutAddress bool
	// translations includes packets of connections that were translated earlier.
	translations bool
	// redirected selects, of the packets of translated connections, only those of connections that
	// are translated to this host.
	redirected bool
	// boundSockets includes packets whose socket is bound to an interface, and packets whose sender
	// has selected the interface for this packet.
	boundSockets bool
	// missingListeners includes hosts on which only some of several listeners of tproxy rules
	// exist.
	missingListeners bool
	// kernelPackets includes the TCP resets that a reject rule may have sent (see space.resets),
	// copies of packets that the host has sent, and packets with a socket of the kernel.
	kernelPackets bool
	// unmarked excludes received packets with a mark, and the first packets of connections with a
	// connection mark. Only tc filters and eBPF programs set such marks before the rules: a packet
	// from another network namespace has no mark (skb_scrub_packet in net/core/skbuff.c).
	unmarked bool
	// untracked selects only packets that enter untracked (EntersUntracked).
	untracked bool
}

// seesTranslations reports whether the outcome of a packet may depend on a translation of earlier
// packets of its connection: a rule depends on the translation, or, if there is a NAT chain, a
// chain sees the new addresses. Chains at output may run after NAT. At prerouting and postrouting,
// packets on lo are already translated.
func seesTranslations(rs *rules.Ruleset, hasNAT bool) bool {
	if hasMatch(rs, readsTranslation) {
		return true
	}
	if !hasNAT {
		return false // TranslationNeedsNATChain
	}
	for _, c := range rs.AllChains() {
		b := c.Base
		if b == nil || b.Type == rules.NAT || !c.HasEffect() {
			continue
		}
		if b.Hook == rules.Prerouting || b.Hook == rules.Postrouting ||
			b.Hook == rules.Output && b.Position() >= natPosition(rules.Output) {
			return true
		}
	}
	return false
}

// readsTranslation reports whether a match may depend on a translation of the connection, even if
// there is no NAT chain. The lookup of a receiving socket reads the connection (see lookedUp).
func readsTranslation(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchStatus, rules.MatchSocket, rules.MatchCgroup:
		return true
	case rules.MatchState:
		return m.States.Has(rules.SNAT) || m.States.Has(rules.DNAT)
	}
	return false
}

// readsUntracked reports whether a rule distinguishes packets that enter untracked from other
// packets without a connection (EntersUntracked).
func readsUntracked(rs *rules.Ruleset) bool {
	distinguishes := func(m rules.Match) bool {
		state, ok := m.(rules.MatchState)
		return ok && state.States.Has(rules.Untracked) != state.States.Has(rules.Invalid)
	}
	changes := func(a rules.Action) bool {
		return isAction[rules.SetZone](a) || isAction[rules.Notrack](a)
	}
	return hasMatch(rs, distinguishes) || rs.HasAction(changes)
}

// dependsOnBinding reports whether the outcome of a packet may depend on whether its socket is
// bound to an interface, or its sender has selected the interface: a rule at output may change the
// route of the packet, or a rule may reject it (RejectFromLoopbackNeedsLocalSource).
func dependsOnBinding(rs *rules.Ruleset) bool {
	return mayReroute(rs) || rs.HasAction(isAction[rules.Reject])
}

// mayReroute reports whether a rule at output may change the route of a packet.
func mayReroute(rs *rules.Ruleset) bool {
	return slices.ContainsFunc(rs.BaseChains(rules.Output), func(c rules.ChainRef) bool {
		return c.Chain.Base.Type != rules.Filter && len(c.Chain.Rules) > 0
	})
}

// sendsResets reports whether a rule of the ruleset, at any hook, may answer a packet with a TCP
// reset (ResetHasConnection).
func sendsResets(rs *rules.Ruleset) bool {
	resets := func(a rules.Action) bool {
		reject, ok := a.(rules.Reject)
		return ok && reject.With == "tcp reset"
	}
	return rs.HasAction(resets) || hasMatch(rs, mayHaveAnyEffect)
}

// redirects reports whether a rule of the ruleset redirects.
func redirects(rs *rules.Ruleset) bool { return rs.HasAction(isAction[rules.RedirectTo]) }
