package diff

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// A view is what the rules of a chain see of a packet instead of what it entered with.
type view struct {
	// before tells that conntrack has not seen the packet yet.
	before bool
	// second tells that the packet has left by lo and arrives.
	second bool
	// redirect and dnat are the ports to which the packet was sent already.
	redirect, dnat uint16
}

// port is the destination port if the rules have replaced it, or 0.
func (v view) port() uint16 { return max(v.redirect, v.dnat) }

// A seen is a match under a view, by its place in a rule.
type seen struct {
	match *rules.Match
	view  view
}

// A matcher turns the matches of rules into sets, each once.
type matcher struct {
	*space
	known map[seen]set
}

// static returns the packets that fulfil a match, which is none of a mark.
func (m *matcher) static(match *rules.Match, v view) set {
	key := seen{match, v}
	packets, ok := m.known[key]
	if !ok {
		packets = m.matching(*match, v)
		m.known[key] = packets
	}
	return packets
}

// unless negates the set if told to.
func (s *space) unless(negated bool, packets set) set {
	if negated {
		return s.not(packets)
	}
	return packets
}

func constant(fulfilled bool) set {
	if fulfilled {
		return all
	}
	return none
}

// matching returns the packets that fulfil the match, as its method Matches tells for one packet.
func (s *space) matching(match rules.Match, v view) set {
	switch m := match.(type) {
	case rules.MatchFamily:
		return constant(m.Family == rules.Inet || m.Family == s.family)
	case rules.MatchInterface:
		return s.interfaceMatches(m, v)
	case rules.MatchAddr:
		return s.addressMatches(m, v)
	case rules.MatchProtocol:
		packets := none
		for _, p := range m.Protocols {
			packets = s.or(packets, s.is(protocol, number(p)))
		}
		return s.unless(m.Not, packets)
	case rules.MatchPort:
		return s.portMatches(m, v)
	case rules.MatchTCPFlags:
		return s.and(s.tcp, s.unless(m.Not, s.having(flags, uint32(m.Value), uint32(m.Mask))))
	case rules.MatchOwner:
		return s.ownerMatches(m, v)
	case rules.MatchState:
		return s.stateMatches(m, v)
	}
	return none
}

func (s *space) interfaceMatches(m rules.MatchInterface, v view) set {
	fulfilled := func(name string) bool {
		return m.Matches(&rules.Packet{InInterface: name, OutInterface: name})
	}
	switch {
	case v.second && !m.Out:
		return constant(fulfilled(loopback))
	case v.second || m.Out != (s.hook == rules.Output):
		return constant(fulfilled(""))
	}
	return s.deviceNamed(fulfilled)
}

// loopbackAddress is where a redirection at output leads.
func (s *space) loopbackAddress() netip.Addr {
	if s.family == rules.IPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func (s *space) addressMatches(m rules.MatchAddr, v view) set {
	if m.Family() != s.family {
		return none
	}
	if m.Side == rules.Destination && v.redirect != 0 && s.hook == rules.Output {
		return constant(m.Matches(&rules.Packet{Destination: netip.AddrPortFrom(s.loopbackAddress(), 0)}))
	}
	f := source
	if m.Side == rules.Destination {
		f = destination
	}
	spans := make([]span, len(m.Ranges))
	for i, r := range m.Ranges {
		spans[i] = span{address(r.From()), address(r.To())}
	}
	return s.unless(m.Not, s.within(f, spans))
}

func (s *space) portMatches(m rules.MatchPort, v view) set {
	f := sourcePort
	if m.Side == rules.Destination {
		f = destinationPort
		if port := v.port(); port != 0 {
			return s.and(s.withPorts, constant(rules.Contains(m.Ports, port) != m.Not))
		}
	}
	return s.and(s.withPorts, s.unless(m.Not, s.within(f, spansOf(m.Ports, 0))))
}

// spansOf converts ranges of numbers, to each of which the base is added.
func spansOf[T uint16 | uint32](ranges []rules.Range[T], base uint64) []span {
	spans := make([]span, len(ranges))
	for i, r := range ranges {
		spans[i] = span{number(base + uint64(r.First)), number(base + uint64(r.Last))}
	}
	return spans
}

func (s *space) ownerMatches(m rules.MatchOwner, v view) set {
	socketless := constant(m.Not && m.Socketless)
	if v.second {
		return socketless
	}
	ids := s.within(user, spansOf(m.IDs, withSocket))
	if m.Group {
		ids = s.within(group, spansOf(m.IDs, 0))
	}
	return s.or(s.and(s.owned, s.unless(m.Not, ids)), s.minus(socketless, s.owned))
}

func (s *space) stateMatches(m rules.MatchState, v view) set {
	in := func(state rules.State) bool { return m.Matches(&rules.Packet{State: state}) }
	if v.before {
		untracked := s.stateIs(rules.Untracked)
		return s.or(s.and(untracked, constant(in(rules.Untracked))), s.minus(constant(in(rules.Invalid)), untracked))
	}
	return s.states(in)
}
