package diff

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A constraint excludes packets that cannot exist at a hook. A wrong constraint hides differences,
// a missing one yields examples that cannot occur. Therefore only constraints that the kernel
// guarantees are listed, except for packets that the limits in README.md name: packets with a
// socket that a program of tc assigned, and bridged packets.
//
// The following packets do exist. A local process can send from a foreign address (IP_TRANSPARENT,
// IP_HDRINCL), to 127.0.0.1 over eth0 and to other hosts over lo (SO_BINDTODEVICE). A packet
// without a socket may begin a connection (sockets of the kernel). A packet may have a mark when it
// arrives (tc, an ingress chain). A connection that counts as new may have a mark (saved for an
// earlier packet). A new TCP connection may begin without SYN (nf_conntrack_tcp_loose). A packet
// for 127.0.0.1 may arrive on eth0: unless the rules redirect it, routing drops it as martian, but
// only after the rules.
type constraint struct {
	// fact describes the constraint, and names the kernel functions that guarantee it.
	fact Fact
	hook rules.Hook
	// impossible are conditions that no packet of the hook meets together.
	impossible []rules.Match
}

// The prefixes in the constraints.
const (
	loopbackIPv4, loopbackIPv6       = "127.0.0.0/8", "::1/128"
	linkLocalIPv6                    = "fe80::/10"
	unspecifiedIPv4, unspecifiedIPv6 = "0.0.0.0/32", "::/128"
	multicastIPv4, multicastIPv6     = "224.0.0.0/4", "ff00::/8"
)

// constraints returns all constraints except those that follow from the packet's form (see
// wellFormedConditions).
//
// Packets of established connections do not traverse NAT chains, nor do packets that arrive on lo
// and have traversed output. These packets exist; the evaluation handles them (enterNAT).
func constraints() []constraint {
	return []constraint{
		{
			fact: LoopbackTraversedOutput,
			hook: rules.Prerouting,
			impossible: []rules.Match{
				rules.MatchInterface{Names: []rules.InterfaceName{{Name: loopback}}},
			},
		},
		{
			fact: SocketsAfterPrerouting,
			hook: rules.Prerouting,
			impossible: []rules.Match{
				rules.MatchOwner{IDs: []rules.IDRange{{Last: math.MaxUint32}}},
			},
		},
		{
			fact:       LoopbackSourceIsDropped,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, loopbackIPv4)},
		},
		{
			fact:       IPv6LoopbackIsDroppedEarly,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, loopbackIPv6)},
		},
		{
			fact:       IPv6LoopbackIsDroppedEarly,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Destination, loopbackIPv6)},
		},
		{
			fact:       MulticastSourceIsDropped,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, multicastIPv4)},
		},
		{
			fact:       MulticastSourceIsDropped,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, multicastIPv6)},
		},
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
	for _, c := range constraints() {
		if c.hook != s.hook {
			continue
		}
		impossible := all
		for _, m := range c.impossible {
			impossible = s.and(impossible, s.matchSet(m, &view{xtables: true}))
		}
		conditions = append(conditions, s.not(impossible))
	}
	if s.excludesFormerScopes() {
		// A redirection drops packets to these addresses, because no interface has an address of
		// their scope.
		for _, prefix := range formerScopes {
			conditions = append(conditions,
				s.not(s.matchSet(addresses(rules.Destination, prefix), &view{})))
		}
	}
	s.domain = s.intersection(conditions)
	return s.domain
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

// formerScopes are the prefixes of IPv6 addresses with a scope that is no longer used:
// IPv4-compatible and site-local addresses.
var formerScopes = [...]string{"::/96", "fec0::/10"}

// hasFormerScope reports whether the address is in one of the formerScopes.
func hasFormerScope(a netip.Addr) bool {
	for _, prefix := range formerScopes {
		if netip.MustParsePrefix(prefix).Contains(a) {
			return true
		}
	}
	return false
}

// excludesFormerScopes reports whether the space excludes packets to addresses of former scopes,
// because it has only packets whose interface has an address (see possible).
func (s *space) excludesFormerScopes() bool {
	return s.single == nil && s.family == rules.IPv6 && s.hook == rules.Prerouting &&
		s.withoutAddress == none
}

// exist reports whether at least one of the packets can exist.
func (s *space) exist(packets set) bool {
	return packets != none && s.intersects(packets, s.possible())
}

// wellFormedConditions returns sets whose intersection contains the well-formed packets. Fields
// that do not exist for the packet's protocol or state are 0, and values are in the range of the
// field. A condition "if a, then b" is the set s.or(s.not(a), b).
func (s *space) wellFormedConditions() []set {
	isZero := func(fields ...field) set {
		packets := all
		for _, f := range fields {
			packets = s.and(packets, s.is(f, value{}))
		}
		return packets
	}
	hasAll := func(bits rules.Status) set {
		return s.maskedEquals(status, uint32(bits), uint32(bits))
	}
	first, later := s.is(state, number(rules.New)), s.is(state, number(laterNew))
	// notNew contains the bits that new connections do not have, notFirst the bits that connections
	// do not have when their first packet enters.
	const notNew = rules.StatusSeenReply | rules.StatusAssured
	const notFirst = notNew | rules.StatusConfirmed | rules.StatusSNAT | rules.StatusDNAT
	conditions := []set{
		s.within(state, []span{{last: number(laterNew)}}),
		s.or(s.withPorts, isZero(sourcePort, destinationPort)),
		s.or(s.tcp, isZero(flags)),
		s.or(s.isICMP, isZero(icmp)),
		s.or(s.not(s.isICMP), s.icmpStates()),
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
		s.or(s.not(first), s.and(isZero(reply), s.maskedEquals(status, 0, uint32(notFirst)))),
		s.or(s.not(later),
			s.and(isZero(reply),
				s.maskedEquals(status, uint32(rules.StatusConfirmed),
					uint32(notNew|rules.StatusConfirmed)))),
		s.or(s.not(s.stateIs(rules.Established)),
			hasAll(rules.StatusSeenReply|rules.StatusConfirmed)),
		s.or(s.retranslated(), isZero(newDestination, newPort)),
		s.or(allIf(s.translations),
			s.maskedEquals(status, 0, uint32(rules.StatusSNAT|rules.StatusDNAT))),
	}
	if s.single == nil {
		conditions = append(conditions,
			s.within(iface, []span{{last: number(uint32(len(s.interfaces.classes) - 1))}}))
	}
	switch {
	case s.hook == rules.Output:
		conditions = append(conditions, isZero(inAddress))
	case s.single == nil && s.withoutAddress == none:
		// The value 0 means that the interface has no address.
		conditions = append(conditions, s.not(isZero(inAddress)))
	}
	return append(conditions, s.addrTypeConditions()...)
}

// icmpStates returns the ICMP messages whose state is possible for their type
// (ICMPStateFollowsType). For other packets the result has no meaning.
func (s *space) icmpStates() set {
	requests, replies := rules.ICMPRequests, rules.ICMPReplies
	if s.family == rules.IPv6 {
		requests, replies = rules.ICMPv6Requests, rules.ICMPv6Replies
	}
	established := s.stateIs(rules.Established)
	ofRequests := s.or(s.stateIs(rules.New), s.and(established, s.is(reply, value{})))
	ofReplies := s.and(established, s.bit(reply, 0))
	return s.and(s.or(s.not(ofRequests), s.icmpTypes(requests)),
		s.or(s.not(ofReplies), s.icmpTypes(replies)))
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
	for _, end := range []struct {
		address, addrType field
		side              rules.Side
	}{{destination, destinationType, rules.Destination}, {source, sourceType, rules.Source}} {
		first := rules.Unicast
		if s.family == rules.IPv6 {
			first = rules.AddrTypeUnknown // see OnlyUnspecifiedIsTypeUnspec
		}
		conditions = append(conditions,
			s.within(end.addrType, []span{{number(first), number(rules.ResolvedType)}}))
		local, multicast := loopbackIPv4, multicastIPv4
		if s.family == rules.IPv6 {
			local, multicast = loopbackIPv6, multicastIPv6
		}
		for prefix, addrType := range map[string]rules.AddrType{
			local: rules.Local, multicast: rules.Multicast,
		} {
			inPrefix := s.matchSet(addresses(end.side, prefix), &view{})
			conditions = append(conditions,
				s.or(s.not(inPrefix), s.is(end.addrType, number(addrType))))
		}
		if s.family == rules.IPv6 {
			hasType := s.not(s.is(end.addrType, number(rules.AddrTypeUnknown)))
			conditions = append(conditions,
				s.or(hasType, s.is(end.address, address(netip.IPv6Unspecified()))))
		} else {
			broadcast := s.is(end.address, address(netip.AddrFrom4([4]byte{255, 255, 255, 255})))
			conditions = append(conditions,
				s.or(s.not(broadcast), s.is(end.addrType, number(rules.Broadcast))))
		}
	}
	return conditions
}
