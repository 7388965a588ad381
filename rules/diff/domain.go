package diff

import (
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A constraint says which packets cannot exist at a hook. A constraint too many hides a difference, one too few shows a packet that
// nobody will ever see: so only those are here of which the kernel leaves no doubt.
//
// Some that come to mind are wrong. A local process sends from a foreign address (IP_TRANSPARENT, IP_HDRINCL), to 127.0.0.1 by eth0
// and to the world by lo (SO_BINDTODEVICE). A packet without a socket may begin a connection (sockets of the kernel itself). A
// packet has a mark when it arrives (tc, an ingress chain). A connection that counts as new has a mark (it was saved when an
// earlier packet passed). A new TCP connection begins without SYN (nf_conntrack_tcp_loose). A packet for 127.0.0.1 arrives by eth0:
// only routing drops it as martian, which comes after the rules, and a redirection saves it.
type constraint struct {
	// Says is the constraint in words, Because the place in the kernel that makes it one.
	says, because string
	hook          rules.Hook
	// impossible are the conditions of which no packet of the hook fulfils all.
	impossible []rules.Match
}

// The prefixes that the constraints speak of.
const (
	loopbackIPv4, loopbackIPv6   = "127.0.0.0/8", "::1/128"
	multicastIPv4, multicastIPv6 = "224.0.0.0/4", "ff00::/8"
)

// constraints returns all there are, beside those which the packet's own form makes (see formed).
//
// That an established connection never meets a NAT chain, and a packet that comes by lo none at prerouting, is not among them:
// such packets exist, and the evaluation leads them past these chains.
func constraints() []constraint {
	return []constraint{
		{
			says:       "what comes by lo was sent before, and begins its way at output",
			because:    "loopback_xmit, drivers/net/loopback.c: lo has no other source but for packet sockets, which make no connection",
			hook:       rules.Prerouting,
			impossible: []rules.Match{rules.MatchInterface{Names: []rules.InterfaceName{{Name: loopback}}}},
		},
		{
			says:       "what arrives has no socket yet",
			because:    "a device's packet has none (loopback_xmit orphans it on lo); sockets are looked up after prerouting",
			hook:       rules.Prerouting,
			impossible: []rules.Match{rules.MatchOwner{IDs: []rules.IDRange{{Last: math.MaxUint32}}}},
		},
		{
			says:       "nothing arrives from an IPv4 loopback address",
			because:    "ip_route_input_slow, net/ipv4/route.c: martian source, whatever the rules did, unless route_localnet is set",
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, loopbackIPv4)},
		},
		{
			says:       "nothing arrives from the IPv6 loopback address",
			because:    "ip6_rcv_core, net/ipv6/ip6_input.c: dropped before prerouting, unless the device is a loopback",
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, loopbackIPv6)},
		},
		{
			says:       "nothing arrives for the IPv6 loopback address",
			because:    "ip6_rcv_core, net/ipv6/ip6_input.c: dropped before prerouting, unless the device is a loopback",
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Destination, loopbackIPv6)},
		},
		{
			says:       "nothing arrives from an IPv4 multicast address",
			because:    "ip_route_input_slow, net/ipv4/route.c: martian source, whatever the rules did",
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, multicastIPv4)},
		},
		{
			says:       "nothing arrives from an IPv6 multicast address",
			because:    "ip6_rcv_core, net/ipv6/ip6_input.c: dropped before prerouting (RFC 4291, section 2.7)",
			hook:       rules.Prerouting,
			impossible: []rules.Match{addresses(rules.Source, multicastIPv6)},
		},
	}
}

func addresses(side rules.Side, prefix string) rules.MatchAddr {
	return rules.MatchAddr{Side: side, Ranges: []netipx.IPRange{netipx.RangeOfPrefix(netip.MustParsePrefix(prefix))}}
}

// Possible tells whether a packet can enter at its hook.
func Possible(p rules.Packet) bool {
	if p.Hook != rules.Prerouting && p.Hook != rules.Output || !formed(p) {
		return false
	}
	return !slices.ContainsFunc(constraints(), func(c constraint) bool {
		return c.hook == p.Hook && !slices.ContainsFunc(c.impossible, func(m rules.Match) bool { return !m.Matches(&p) })
	})
}

// formed tells whether the packet has only what a packet of its kind can have.
func formed(p rules.Packet) bool {
	hasPorts := p.Protocol == rules.TCP || p.Protocol == rules.UDP
	return rules.FamilyOf(p.Source.Addr()) == p.Family() &&
		(hasPorts || p.Source.Port() == 0 && p.Destination.Port() == 0) &&
		(p.Protocol == rules.TCP || p.Flags == 0) &&
		// Conntrack keeps a mark only for the connections that it knows.
		(p.State.HasConnection() || p.ConntrackMark == 0)
}

// domain returns the packets that are possible.
func (s *space) domain() set {
	possible := s.formed()
	for _, c := range constraints() {
		if c.hook != s.hook {
			continue
		}
		impossible := all
		for _, m := range c.impossible {
			impossible = s.and(impossible, s.matching(m, view{}))
		}
		possible = s.minus(possible, impossible)
	}
	return possible
}

// formed returns the packets which the function of that name accepts, and which have no bits without a meaning.
func (s *space) formed() set {
	isZero := func(fields ...field) set {
		packets := all
		for _, f := range fields {
			packets = s.and(packets, s.is(f, value{}))
		}
		return packets
	}
	packets := s.within(device, []span{{last: number(uint32(len(s.devices) - 1))}})
	for _, whole := range []set{
		s.within(state, []span{{last: number(rules.Untracked)}}),
		s.or(s.withPorts, isZero(sourcePort, destinationPort)),
		s.or(s.tcp, isZero(flags)),
		s.or(s.owned, isZero(user, group)),
		s.or(s.connected, isZero(connectionMark)),
	} {
		packets = s.and(packets, whole)
	}
	return packets
}
