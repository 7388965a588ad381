package diff

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// The prefixes of addresses that the kernel treats specially.
const (
	loopbackIPv4, loopbackIPv6       = "127.0.0.0/8", "::1/128"
	linkLocalIPv6                    = "fe80::/10"
	unspecifiedIPv4, unspecifiedIPv6 = "0.0.0.0/32", "::/128"
	multicastIPv4, multicastIPv6     = "224.0.0.0/4", "ff00::/8"
)

// loopbackPrefix returns the prefix of the loopback addresses of the family.
func (s *space) loopbackPrefix() string {
	return rules.ByFamily(s.family, loopbackIPv4, loopbackIPv6)
}

// deprecatedPrefixes are the prefixes of deprecated IPv6 addresses: IPv4-compatible addresses (RFC
// 4291) and site-local addresses (RFC 3879).
var deprecatedPrefixes = [...]string{"::/96", "fec0::/10"}

// impossibleAtPrerouting returns conditions that no packet at prerouting meets, except for packets
// that the section Limits of README.md names. A wrong condition hides differences, a missing one
// yields examples that cannot occur. wellFormedConditions contains the conditions on the form of
// packets.
//
// The following packets do exist. A local process can send from a foreign address (IP_TRANSPARENT,
// IP_HDRINCL), to 127.0.0.1 over eth0 and to other hosts over lo (SO_BINDTODEVICE). A packet
// without a socket may begin a connection (sockets of the kernel). A packet may have a mark when it
// arrives (tc, an ingress chain). A connection that counts as new may have a mark (saved for an
// earlier packet). A new TCP connection may begin without SYN (nf_conntrack_tcp_loose). A packet
// for 127.0.0.1 may arrive on eth0: unless the rules redirect it, routing drops it as martian, but
// only after the rules. Packets of established connections do not traverse NAT chains, nor do
// packets that arrive on lo and have traversed output, but they exist: see enterNAT.
func impossibleAtPrerouting() []rules.Match {
	return []rules.Match{
		// LoopbackTraversedOutput
		rules.MatchInterface{Names: []rules.InterfaceName{{Name: loopback}}},
		// SocketsAfterPrerouting
		rules.MatchOwner{IDs: []rules.IDRange{{Last: math.MaxUint32}}},
		// LoopbackSourceIsDropped
		addresses(rules.Source, loopbackIPv4),
		// IPv6LoopbackIsDroppedEarly
		addresses(rules.Source, loopbackIPv6),
		addresses(rules.Destination, loopbackIPv6),
		// MulticastSourceIsDropped
		addresses(rules.Source, multicastIPv4),
		addresses(rules.Source, multicastIPv6),
	}
}

// addresses returns the match of packets whose source or destination is in the prefix.
func addresses(side rules.Side, prefix string) rules.MatchAddr {
	return rules.MatchAddr{
		Side: side, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(netip.MustParsePrefix(prefix))},
	}
}

// Possible reports whether a packet can enter at its hook for some value of its unknown fields.
func Possible(p rules.Packet) bool {
	if p.Hook != rules.Prerouting && p.Hook != rules.Output ||
		rules.FamilyOf(p.Source.Addr()) != p.Family() {
		return false
	}
	s := newPacketSpace(p, newMeter(DefaultBudget))
	s.domain = none
	return s.possible() != none
}

// possible returns the packets that can exist. Walks do not use it, because sets are smaller if
// they include impossible packets.
func (s *space) possible() set {
	if s.domain != none {
		return s.domain
	}
	conditions := s.wellFormedConditions()
	if s.hook == rules.Prerouting {
		for _, m := range impossibleAtPrerouting() {
			conditions = append(conditions, s.not(s.matchSet(m, &view{xtables: true})))
		}
	}
	if s.excludesDeprecated() {
		// A redirection drops packets to these addresses, because no interface has an address of
		// their scope.
		for _, prefix := range deprecatedPrefixes {
			conditions = append(conditions,
				s.not(s.matchSet(addresses(rules.Destination, prefix), &view{})))
		}
	}
	s.describedDomain = s.intersection(conditions)
	s.domain = s.and(s.describedDomain, s.trackable())
	return s.domain
}

// trackable returns the packets that may have their state and their connection's mark in conntrack.
// Without this condition the descriptions of classes are shorter.
func (s *space) trackable() set {
	other := s.protocolIn(rules.ByFamily(s.family, rules.ICMPv6, rules.ICMP))
	packets := s.minus(s.implies(s.tcp, s.tcpStates()),
		s.and(other, s.connected)) // ICMPOfOtherFamilyIsInvalid
	if s.hook == rules.Output {
		// Only bridges, tc filters and eBPF programs give a mark to a new connection before the rules,
		// and only if its first packet is received.
		packets = s.and(packets,
			s.implies(s.is(state, number(rules.New)), s.is(connectionMark, value{})))
	}
	return packets
}

// intersection returns the intersection of the sets. It begins with the sets whose root nodes test
// the last bits: each intermediate result is the lower part of the next one, and is not traversed
// again.
func (s *space) intersection(conditions []set) set {
	slices.SortStableFunc(conditions, func(a, b set) int {
		return cmp.Compare(s.rootBit(b), s.rootBit(a))
	})
	packets := all
	for _, c := range conditions {
		packets = s.and(c, packets)
	}
	return packets
}

// isDeprecated reports whether the address is in one of the deprecatedPrefixes.
func isDeprecated(a netip.Addr) bool {
	return slices.ContainsFunc(deprecatedPrefixes[:], func(prefix string) bool {
		return netip.MustParsePrefix(prefix).Contains(a)
	})
}

// excludesDeprecated reports whether the space excludes packets to deprecated addresses, because it
// has only packets whose interface has an address (see possible).
func (s *space) excludesDeprecated() bool {
	return s.single == nil && s.family == rules.IPv6 && s.hook == rules.Prerouting &&
		s.lacksAddress == none
}

// anyPossible reports whether at least one of the packets can exist.
func (s *space) anyPossible(packets set) bool {
	return packets != none && s.intersects(packets, s.possible())
}

// wellFormedConditions returns sets whose intersection contains the well-formed packets. Fields
// that do not exist for the packet's protocol or state are 0, and values are in the range of the
// field.
func (s *space) wellFormedConditions() []set {
	isZero := func(fields ...field) set {
		packets := all
		for _, f := range fields {
			packets = s.and(packets, s.is(f, value{}))
		}
		return packets
	}
	first, later := s.is(state, number(rules.New)), s.is(state, number(laterNew))
	// notNew contains the bits that new connections do not have, notFirst the bits that connections
	// do not have when their first packet enters, and ofEstablished the bits that established
	// connections have.
	const notNew = rules.StatusSeenReply | rules.StatusAssured
	const notFirst = notNew | rules.StatusConfirmed | rules.StatusSNAT | rules.StatusDNAT
	const ofEstablished = uint32(rules.StatusSeenReply | rules.StatusConfirmed)
	conditions := []set{
		s.within(state, []span{{last: number(laterNew)}}),
		s.or(s.withPorts, isZero(sourcePort, destinationPort)),
		s.or(s.tcp, isZero(flags)),
		s.or(s.isICMP, isZero(icmp)),
		s.implies(s.isICMP, s.icmpStates()),
		s.implies(s.minus(s.stateIs(rules.Related), s.isICMP), s.relatedStates()),
		// Only packets with a socket of a user have a user and a group.
		s.or(s.hasUserSocket,
			s.and(isZero(group), s.within(user, []span{{last: number[uint8](kernelSocketUser)}}))),
		// Conntrack has marks, status bits and a direction only for known connections.
		s.or(s.connected, isZero(connectionMark, status, reply)),
		// Packets of tc and of dup rules may enter untracked. The effect of notrack rules is part
		// of the evaluation.
		s.or(allIf(s.untracked), s.not(s.entersUntracked())),
		s.or(allIf(s.kernelPackets), s.not(s.or(s.resets, s.hasKernelSocket))),
		s.not(s.excluded),
		// A new connection has no reply.
		s.implies(first, s.and(isZero(reply), s.maskedEquals(status, 0, uint32(notFirst)))),
		s.implies(later,
			s.and(isZero(reply),
				s.maskedEquals(status, uint32(rules.StatusConfirmed),
					uint32(notNew|rules.StatusConfirmed)))),
		s.implies(s.stateIs(rules.Established),
			s.maskedEquals(status, ofEstablished, ofEstablished)),
		s.or(s.retranslated(), isZero(newDestination, newPort)),
		s.or(allIf(s.translations),
			s.maskedEquals(status, 0, uint32(rules.StatusSNAT|rules.StatusDNAT))),
	}
	if s.unmarked {
		if s.hook == rules.Prerouting {
			conditions = append(conditions, isZero(mark))
		}
		// A connection that conntrack has expected has the mark of its master. The desired ruleset
		// assigns no conntrack helper.
		expected := s.minus(s.stateIs(rules.Related), s.isICMP)
		conditions = append(conditions, s.implies(s.or(first, expected), isZero(connectionMark)))
	}
	if s.single == nil {
		conditions = append(conditions,
			s.within(iface, []span{{last: number(uint32(len(s.interfaces.classes) - 1))}}))
	}
	switch {
	case s.hook == rules.Output:
		conditions = append(conditions, isZero(inAddress))
	case s.single == nil && s.lacksAddress == none:
		// The value 0 means that the interface has no address.
		conditions = append(conditions, s.not(isZero(inAddress)))
	}
	return append(conditions, s.addrTypeConditions()...)
}

// icmpStates returns the ICMP messages whose state is possible for their type
// (ICMPStateFollowsType). For other packets the result has no meaning.
func (s *space) icmpStates() set {
	requests := rules.ByFamily(s.family, rules.ICMPRequests, rules.ICMPv6Requests)
	replies := rules.ByFamily(s.family, rules.ICMPReplies, rules.ICMPv6Replies)
	errors := s.icmpErrors()
	if s.family == rules.IPv6 {
		errors = s.or(errors, s.icmpTypes([]uint8{rules.ICMPv6Redirect}))
	}
	established, original := s.stateIs(rules.Established), s.is(reply, value{})
	ofRequests := s.or(s.stateIs(rules.New), s.and(established, original))
	ofReplies := s.minus(established, original)
	// The kernel has no helper that expects a request, but a program can expect one.
	expected := s.and(original, s.icmpTypes(requests))
	return s.intersection([]set{
		s.implies(ofRequests, s.icmpTypes(requests)),
		s.implies(ofReplies, s.icmpTypes(replies)),
		s.implies(s.stateIs(rules.Related), s.or(errors, expected)),
	})
}

// tcpStates returns the TCP segments whose state is possible for their flags
// (TCPStateFollowsFlags). For other packets the result has no meaning.
func (s *space) tcpStates() set {
	withFlags := func(lists ...[]rules.TCPFlags) set {
		segments := none
		for _, f := range slices.Concat(lists...) {
			segments = s.or(segments,
				s.maskedEquals(flags, uint32(f), math.MaxUint8&^uint32(rules.IgnoredFlags)))
		}
		return segments
	}
	return s.and(s.implies(s.is(state, number(rules.New)), withFlags(rules.FirstFlags)),
		s.implies(s.connected, withFlags(rules.FirstFlags, rules.LaterFlags)))
}

// relatedStates returns the packets that are possible in state related, except ICMP messages: the
// packets of expected connections and the resets of reject rules (RelatedFollowsOrigin).
func (s *space) relatedStates() set {
	return s.or(s.is(reply, value{}), s.and(s.resets, s.is(user, value{})))
}

// icmpErrors returns the ICMP errors, which report another packet. For packets of other protocols
// the result has no meaning.
func (s *space) icmpErrors() set {
	if s.family == rules.IPv4 {
		return s.icmpTypes(rules.ICMPErrors)
	}
	const last = uint16(rules.FirstInformationalICMPv6)<<8 - 1
	return s.within(icmp, []span{{last: number(last)}})
}

// icmpTypes returns the packets with one of the ICMP types.
func (s *space) icmpTypes(types []uint8) set {
	var spans []span
	for _, t := range types {
		first := uint16(t) << 8
		spans = append(spans, span{number(first), number(first | 0xff)})
	}
	return s.within(icmp, spans)
}

// addrTypeOf returns the type of an address if it is the same on every host, otherwise
// AddrTypeUnknown.
func addrTypeOf(a netip.Addr) rules.AddrType {
	switch {
	case a.IsLoopback():
		return rules.Local
	case a.IsMulticast():
		return rules.Multicast
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return rules.Broadcast
	}
	return rules.AddrTypeUnknown
}

// addrTypeConditions returns sets whose intersection contains the packets with possible types of
// their addresses.
func (s *space) addrTypeConditions() []set {
	var conditions []set
	add := func(condition set) { conditions = append(conditions, condition) }
	for _, end := range []struct {
		address, addrType field
		side              rules.Side
	}{{destination, destinationType, rules.Destination}, {source, sourceType, rules.Source}} {
		// Only the IPv6 address :: has no type (OnlyUnspecifiedIsTypeUnspec).
		first := rules.ByFamily(s.family, rules.Unicast, rules.AddrTypeUnknown)
		add(s.within(end.addrType, []span{{number(first), number(rules.ResolvedType)}}))
		for prefix, addrType := range map[string]rules.AddrType{
			s.loopbackPrefix(): rules.Local,
			rules.ByFamily(s.family, multicastIPv4, multicastIPv6): rules.Multicast,
		} {
			inPrefix := s.matchSet(addresses(end.side, prefix), &view{})
			add(s.implies(inPrefix, s.is(end.addrType, number(addrType))))
		}
		if s.family == rules.IPv6 {
			hasNoType := s.is(end.addrType, number(rules.AddrTypeUnknown))
			add(s.implies(hasNoType, s.is(end.address, address(netip.IPv6Unspecified()))))
		} else {
			broadcast := s.is(end.address, address(netip.AddrFrom4([4]byte{255, 255, 255, 255})))
			add(s.implies(broadcast, s.is(end.addrType, number(rules.Broadcast))))
		}
	}
	return conditions
}
