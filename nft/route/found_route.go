package route

import (
	"bytes"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// foundRoute is a route of the namespace.
type foundRoute struct {
	family      rules.Family
	kind        uint8 // for example RTN_LOCAL
	tos         uint8
	protocol    uint8 // for example RTPROT_KERNEL
	flags       uint32
	destination netip.Prefix
	source      netip.Prefix // only of IPv6 routes; invalid: the route matches all sources
	preferred   netip.Addr   // the source address of packets of unbound sockets
	table       uint32
	metric      uint32
	nextHop     // of a route with one next hop
	// hops contains the first maxHops of several next hops. moreHops is set if there are more.
	hops     []nextHop
	moreHops bool
	// nextHopID is the number of a nexthop object. If the sysctl net.ipv4.nexthop_compat_mode is 0,
	// the kernel does not report the next hops of such a route.
	nextHopID uint32
	// isOverLo reports whether the interface of a next hop is the loopback interface.
	isOverLo bool
	// encap is the type of an encapsulation of the route or of a next hop; 0: none. See joinEncaps.
	encap uint16
	// others is the text of all attributes without a field above, known or not.
	others string
}

// nextHop is a next hop of a route.
type nextHop struct {
	gateway netip.Addr
	device  uint32
	encap   uint16
}

// routeNextHopID is the attribute RTA_NH_ID (linux/rtnetlink.h).
const routeNextHopID = 30

// maxHops is the maximum number of next hops in the text of a route. A process of the pod can add
// thousands to a route.
const maxHops = 16

// isPlain reports whether the route, with its interface, has only fields of a [localRoute]: it
// applies to all packets with the destination, and has no next hop other than the interface.
func (r *foundRoute) isPlain() bool {
	return r.tos == 0 && !r.source.IsValid() && !r.preferred.IsValid() && !r.gateway.IsValid() &&
		r.hops == nil && r.nextHopID == 0 && r.encap == 0 && r.others == ""
}

// endsHere reports whether packets that the route matches do not leave the namespace: the route
// delivers or drops them.
func (r *foundRoute) endsHere() bool {
	switch r.kind {
	case unix.RTN_LOCAL:
		return r.encap == 0
	case unix.RTN_BLACKHOLE, unix.RTN_UNREACHABLE, unix.RTN_PROHIBIT:
		return true
	}
	return false
}

// isSelective reports whether the route applies only to some packets with the destination. Any
// process can choose the type of service and the source address of its packets.
func (r *foundRoute) isSelective() bool { return r.tos != 0 || r.source.IsValid() }

// decodeRoute decodes the body of a message about a route. The body begins with a struct rtmsg:
// family, dst_len, src_len, tos, table, protocol, scope, type, and flags in 32 bits.
func decodeRoute(body []byte) (foundRoute, error) {
	if len(body) < unix.SizeofRtMsg {
		return foundRoute{}, nlmsg.ErrMalformed
	}
	r := foundRoute{
		family: FamilyOf(int(body[0])), kind: body[7], tos: body[3], protocol: body[5],
		table: uint32(body[4]), flags: native.Uint32(body[8:]),
	}
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	hasOthers, areHopsWellFormed := false, true
	wellFormed := a.Each(func(kind uint16, value []byte) {
		switch n, _ := nlmsg.HostNumber(value); kind {
		case unix.RTA_DST, unix.RTA_SRC: // see below
		case unix.RTA_TABLE:
			r.table = n
		case unix.RTA_PRIORITY:
			r.metric = n
		case unix.RTA_PREFSRC:
			r.preferred, _ = netip.AddrFromSlice(value)
		case routeNextHopID:
			r.nextHopID = n
		case unix.RTA_MULTIPATH:
			areHopsWellFormed = r.addHops(value)
		case unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_ENCAP_TYPE, unix.RTA_ENCAP:
			r.set(kind, value)
		default:
			hasOthers = hasOthers || !isDefaultAttribute(kind, value)
		}
	})
	if !wellFormed || !areHopsWellFormed {
		return foundRoute{}, nlmsg.ErrMalformed
	}
	unspecified := netip.IPv4Unspecified()
	if r.family == rules.IPv6 {
		unspecified = netip.IPv6Unspecified()
	}
	r.destination = prefixOf(a.Get(unix.RTA_DST), unspecified, body[1])
	if body[2] != 0 {
		r.source = prefixOf(a.Get(unix.RTA_SRC), unspecified, body[2])
	}
	r.isOverLo = r.isOverLo || r.device == netns.LoopbackIndex
	r.encap = joinEncaps(r.encap, r.nextHop.encap)
	if hasOthers {
		r.others = otherAttributes(a)
	}
	return r, nil
}

// decodeAnswer decodes the body of an answer to a request for the route of packets.
func decodeAnswer(body []byte) (foundRoute, error) {
	r, err := decodeRoute(body)
	r.source = netip.Prefix{} // of the packets, not a selector of the route
	return r, err
}

// joinEncaps combines the types of encapsulation of two next hops of a route. A decapsulation
// (seg6local) takes precedence.
func joinEncaps(a, b uint16) uint16 {
	if a == unix.LWTUNNEL_ENCAP_SEG6_LOCAL || b == 0 {
		return a
	}
	return b
}

// prefixOf returns the prefix of an address attribute. If the attribute is absent, the address is
// unspecified.
func prefixOf(address []byte, unspecified netip.Addr, bits uint8) netip.Prefix {
	a, ok := netip.AddrFromSlice(address)
	if !ok {
		a = unspecified
	}
	return netip.PrefixFrom(a, int(bits))
}

// set sets the field of the next hop for an attribute. It ignores an attribute without a field.
func (h *nextHop) set(kind uint16, value []byte) {
	switch kind {
	case unix.RTA_OIF:
		h.device, _ = nlmsg.HostNumber(value)
	case unix.RTA_GATEWAY:
		h.gateway, _ = netip.AddrFromSlice(value)
	case unix.RTA_VIA: // a struct rtvia: the family in 16 bits, and the address
		h.gateway, _ = netip.AddrFromSlice(value[min(2, len(value)):])
	case unix.RTA_ENCAP_TYPE:
		h.encap = uint16(hostNumber(value))
	}
}

// addHops adds the next hops of an attribute, and reports whether the attribute is well-formed.
// Each next hop is a struct rtnexthop (its length in 16 bits, two bytes, the interface in 32 bits)
// and attributes.
func (r *foundRoute) addHops(value []byte) bool {
	for len(value) > 0 {
		if len(value) < unix.SizeofRtNexthop {
			return false
		}
		length := int(native.Uint16(value))
		if length < unix.SizeofRtNexthop || length > len(value) {
			return false
		}
		hop := nextHop{device: native.Uint32(value[4:])}
		if !nlmsg.Attributes(value[unix.SizeofRtNexthop:length]).Each(hop.set) {
			return false
		}
		r.isOverLo = r.isOverLo || hop.device == netns.LoopbackIndex
		r.encap = joinEncaps(r.encap, hop.encap)
		if r.moreHops = len(r.hops) == maxHops; !r.moreHops {
			r.hops = append(r.hops, hop)
		}
		value = value[min(nlmsg.Align(length), len(value)):]
	}
	return true
}

// isDefaultAttribute reports whether the attribute has the value that the kernel reports for a
// route that was added without it.
func isDefaultAttribute(kind uint16, value []byte) bool {
	switch kind {
	case unix.RTA_PREF, unix.RTA_METRICS:
		return isZero(value) || kind == unix.RTA_METRICS && metricsText(value) == ""
	case unix.RTA_CACHEINFO:
		return expiry(value) == 0
	case unix.RTA_PAD, unix.RTA_UID: // RTA_UID is in replies to RTM_GETROUTE for a single route
		return true
	}
	return false
}

// expiry returns the time until the route expires, from a struct rta_cacheinfo; 0: never.
func expiry(value []byte) uint32 {
	if len(value) < 12 {
		return 0
	}
	return native.Uint32(value[8:])
}

// isZero reports whether all bytes are 0.
func isZero(value []byte) bool { return len(bytes.TrimLeft(value, "\x00")) == 0 }
