package diff

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A constraint says which packets cannot exist at a hook. A constraint too many hides a difference,
// one too few shows a packet that nobody will ever see: so only those are here of which the kernel
// leaves no doubt.
//
// Some that come to mind are wrong. A local process sends from a foreign address (IP_TRANSPARENT,
// IP_HDRINCL), to 127.0.0.1 by eth0 and to the world by lo (SO_BINDTODEVICE). A packet without a
// socket may begin a connection (sockets of the kernel itself). A packet has a mark when it arrives
// (tc, an ingress chain). A connection that counts as new has a mark (it was saved when an earlier
// packet passed). A new TCP connection begins without SYN (nf_conntrack_tcp_loose). A packet for
// 127.0.0.1 arrives by eth0: only routing drops it as martian, which comes after the rules, and a
// redirection saves it.
type constraint struct {
	// fact is the constraint in words, with the place in the kernel that makes it one.
	fact Fact
	hook rules.Hook
	// impossible are conditions that no packet of the hook fulfils together.
	impossible []rules.Match
}

// The prefixes that the constraints speak of.
const (
	loopbackIPv4, loopbackIPv6       = "127.0.0.0/8", "::1/128"
	linkLocalIPv6                    = "fe80::/10"
	unspecifiedIPv4, unspecifiedIPv6 = "0.0.0.0/32", "::/128"
	multicastIPv4, multicastIPv6     = "224.0.0.0/4", "ff00::/8"
)

// constraints returns all constraints except the ones that follow from the packet's own form (see
// formed).
//
// That an established connection never meets a NAT chain, and a packet that comes by lo none at
// prerouting, is not among them: such packets exist, and the evaluation leads them past these
// chains.
func constraints() []constraint {
	return []constraint{
		{
			fact:       LoopbackWasSent,
			hook:       rules.Prerouting,
			impossible: []rules.Match{rules.MatchInterface{Names: []rules.InterfaceName{{Name: loopback}}}},
		},
		{
			fact:       SocketsAfterPrerouting,
			hook:       rules.Prerouting,
			impossible: []rules.Match{rules.MatchOwner{IDs: []rules.IDRange{{Last: math.MaxUint32}}}},
		},
		{
			fact:       LoopbackSourceNeverArrives,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, loopbackIPv4)},
		},
		{
			fact:       LoopbackIPv6NeverArrives,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, loopbackIPv6)},
		},
		{
			fact:       LoopbackIPv6NeverArrives,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Destination, loopbackIPv6)},
		},
		{
			fact:       MulticastSourceNeverArrives,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, multicastIPv4)},
		},
		{
			fact:       MulticastSourceNeverArrives,
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, multicastIPv6)},
		},
	}
}

func addresses(side rules.Side, prefix string) rules.MatchAddr {
	return rules.MatchAddr{Side: side, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(netip.MustParsePrefix(prefix))}}
}

// Possible reports whether a packet can enter at its hook. Of what it does not say, some value must
// be possible.
func Possible(p rules.Packet) bool {
	if p.Hook != rules.Prerouting && p.Hook != rules.Output || rules.FamilyOf(p.Source.Addr()) != p.Family() {
		return false
	}
	s := newSpaceOf(p, newMeter(DefaultBudget))
	s.domain = none
	return s.possible() != none
}

// possible returns the packets that can exist. No walk asks for them: sets are small as long as
// they need not say what is impossible.
func (s *space) possible() set {
	if s.domain != none {
		return s.domain
	}
	conditions := s.formed()
	for _, c := range constraints() {
		if c.hook != s.hook {
			continue
		}
		impossible := all
		for _, m := range c.impossible {
			impossible = s.and(impossible, s.matching(m, &view{}))
		}
		conditions = append(conditions, s.not(impossible))
	}
	if s.leavesOutScopes() {
		// A redirection drops what is sent to them: no interface has an address of their scope.
		for _, prefix := range formerScopes {
			conditions = append(conditions, s.not(s.matching(addresses(rules.Destination, prefix), &view{})))
		}
	}
	s.domain = s.fulfilling(conditions)
	return s.domain
}

// fulfilling returns the packets that are in all sets. A set that asks only for late bits comes
// first: what is already combined is then only the lower part of what comes next, and is not walked
// again.
func (s *space) fulfilling(conditions []set) set {
	slices.SortStableFunc(conditions, func(a, b set) int { return cmp.Compare(s.nodes[b].bit, s.nodes[a].bit) })
	packets := all
	for _, c := range conditions {
		packets = s.and(c, packets)
	}
	return packets
}

// formerScopes are prefixes of IPv6 addresses with a scope of their own: IPv4-compatible and
// site-local.
var formerScopes = [...]string{"::/96", "fec0::/10"}

func hasFormerScope(a netip.Addr) bool {
	for _, prefix := range formerScopes {
		if netip.MustParsePrefix(prefix).Contains(a) {
			return true
		}
	}
	return false
}

// leavesOutScopes reports whether packets for addresses of some scopes are not among those that can
// exist.
func (s *space) leavesOutScopes() bool {
	return s.one == nil && s.family == rules.IPv6 && s.hook == rules.Prerouting && s.withoutAddress == none
}

// exist reports whether some of the packets can exist.
func (s *space) exist(packets set) bool { return packets != none && s.meet(packets, s.possible()) }

// formed returns sets that have in common the packets that have only what a packet of their kind
// can have, and no bits without a meaning.
func (s *space) formed() []set {
	isZero := func(fields ...field) set {
		packets := all
		for _, f := range fields {
			packets = s.and(packets, s.is(f, value{}))
		}
		return packets
	}
	has := func(bits rules.Status) set { return s.having(status, uint32(bits), uint32(bits)) }
	first, later := s.is(state, number(rules.New)), s.is(state, number(known))
	const noneOfNew = rules.StatusSeenReply | rules.StatusAssured
	const noneOfFirst = noneOfNew | rules.StatusConfirmed | rules.StatusSNAT | rules.StatusDNAT
	conditions := []set{
		s.within(state, []span{{last: number(known)}}),
		s.or(s.withPorts, isZero(sourcePort, destinationPort)),
		s.or(s.tcp, isZero(flags)),
		s.or(s.isICMP, isZero(icmp)),
		s.or(s.owned, isZero(user, group)),
		// Conntrack keeps marks, bits and a direction only for the connections that it knows.
		s.or(s.connected, isZero(connectionMark, status, reply)),
		// Conntrack leaves only neighbour discovery untracked by itself. Rules that do so are part
		// of the evaluation. Few packets enter untracked: those of a filter of tc, and copies.
		s.or(constant(s.untracked), s.not(s.untrackedBefore())),
		// A new connection has seen no answer.
		s.or(s.not(first), s.and(isZero(reply), s.having(status, 0, uint32(noneOfFirst)))),
		s.or(s.not(later), s.and(isZero(reply), s.having(status, uint32(rules.StatusConfirmed), uint32(noneOfNew|rules.StatusConfirmed)))),
		s.or(s.not(s.stateIs(rules.Established)), has(rules.StatusSeenReply|rules.StatusConfirmed)),
		s.or(s.retranslated(), isZero(newDestination, newPort)),
		s.or(constant(s.translations), s.having(status, 0, uint32(rules.StatusSNAT|rules.StatusDNAT))),
	}
	if s.one == nil {
		conditions = append(conditions, s.within(device, []span{{last: number(uint32(len(s.devices.classes) - 1))}}))
	}
	switch {
	case s.hook == rules.Output:
		conditions = append(conditions, isZero(inAddress))
	case s.one == nil && s.withoutAddress == none:
		conditions = append(conditions, s.not(isZero(inAddress))) // which says that there is none
	}
	return append(conditions, s.addrTypes()...)
}

// addrTypeOf returns the type of an address that has the same one on each host, else
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

// addrTypes returns sets that have in common the packets whose addresses have a type that such
// addresses can have.
func (s *space) addrTypes() []set {
	var conditions []set
	for _, side := range []struct {
		address, kind field
		of            rules.Side
	}{{destination, destinationType, rules.Destination}, {source, sourceType, rules.Source}} {
		first := rules.Unicast
		if s.family == rules.IPv6 {
			first = rules.AddrTypeUnknown // see UnspecifiedAddressHasNoType
		}
		conditions = append(conditions, s.within(side.kind, []span{{number(first), number(rules.ResolvedType)}}))
		local, multicast := loopbackIPv4, multicastIPv4
		if s.family == rules.IPv6 {
			local, multicast = loopbackIPv6, multicastIPv6
		}
		for prefix, is := range map[string]rules.AddrType{local: rules.Local, multicast: rules.Multicast} {
			in := s.matching(addresses(side.of, prefix), &view{})
			conditions = append(conditions, s.or(s.not(in), s.is(side.kind, number(is))))
		}
		if s.family == rules.IPv6 {
			typed := s.not(s.is(side.kind, number(rules.AddrTypeUnknown)))
			conditions = append(conditions, s.or(typed, s.is(side.address, address(netip.IPv6Unspecified()))))
		}
		if s.family == rules.IPv4 {
			broadcast := s.is(side.address, address(netip.AddrFrom4([4]byte{255, 255, 255, 255})))
			conditions = append(conditions, s.or(s.not(broadcast), s.is(side.kind, number(rules.Broadcast))))
		}
	}
	return conditions
}
