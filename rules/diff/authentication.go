package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// authenticationHeader is the protocol of an IP authentication header (RFC 4302).
const authenticationHeader rules.Protocol = 51

// OmitsAuthenticationHeaders reports whether Decide omits packets with an authentication header. It
// does so if the rulesets compare the protocols of IPv6 packets in two ways, which differ for such
// packets (AuthenticationHeaderIsSkipped).
func OmitsAuthenticationHeaders(left, right *rules.Ruleset) bool {
	return (comparesProtocolsOfLegacy(left) || comparesProtocolsOfLegacy(right)) &&
		(comparesProtocols(left, false) || comparesProtocols(right, false))
}

// comparesProtocolsOfLegacy reports whether a rule of iptables-legacy depends on the protocol of
// IPv6 packets.
func comparesProtocolsOfLegacy(rs *rules.Ruleset) bool { return comparesProtocols(rs, true) }

// comparesProtocols reports whether a rule depends on the protocol of IPv6 packets. If legacy is
// true, it considers only the rules of iptables-legacy, otherwise only the other rules.
func comparesProtocols(rs *rules.Ruleset, legacy bool) bool {
	reads := inTuples(readsProtocol)
	for t, r := range rs.AllRules() {
		if t.Family != rules.IPv4 && t.XTables == legacy && !isOfOtherFamily(r, rules.IPv6) &&
			ruleHasMatch(r, reads) {
			return true
		}
	}
	return false
}

// readsProtocol reports whether a match depends on the protocol.
func readsProtocol(m rules.Match) bool {
	_, ok := m.(rules.MatchProtocol)
	return ok || readsTransport(m)
}

// isOfOtherFamily reports whether the rule does not match packets of the family, because it matches
// the other family or its addresses.
func isOfOtherFamily(r *rules.Rule, f rules.Family) bool {
	return slices.ContainsFunc(r.Matches, func(m rules.Match) bool {
		family := rules.Inet
		switch m := m.(type) {
		case rules.MatchFamily:
			family = m.Family
		case rules.MatchAddr:
			family = m.Family()
		}
		return family != f && family != rules.Inet
	})
}

// protocolMatches returns the packets that meet a match on their protocol.
func (s *space) protocolMatches(m rules.MatchProtocol, v *view) set {
	if v.skipsAuthentication && s.single != nil && s.single.Protocol == authenticationHeader {
		return s.negateIf(m.Not, s.variable(variable{
			key: "protocol after the authentication header " + m.String(), kind: unknownBit,
			text: "the protocol after the authentication header",
		}))
	}
	return s.negateIf(m.Not, s.protocolIn(m.Protocols...))
}

// protocolIn returns the packets of the protocols.
func (s *space) protocolIn(protocols ...rules.Protocol) set {
	packets := none
	for _, p := range protocols {
		s.meter.step()
		packets = s.or(packets, s.is(protocol, number(p)))
	}
	return packets
}
