package route

import (
	"encoding/binary"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// native is the byte order of netlink. It is a pointer because a copy would need initialization
// code at program start.
var native = &binary.NativeEndian

// queryRequest returns the request for ::6 on lo and the policy rules of all families.
func queryRequest() []byte {
	return fastRequests.query.get(func() []byte {
		// With strict checking the kernel rejects a prefix length.
		return addrAndRulesRequest(nl.NewNetlinkRequest(unix.RTM_GETADDR, 0), 0)
	})
}

// addRequest returns the request that adds ::6 to lo, like [loopbackAddr.add], and the request for
// the policy rules of all families.
func addRequest() []byte {
	return fastRequests.add.get(func() []byte {
		return addrAndRulesRequest(nl.NewNetlinkRequest(unix.RTM_NEWADDR,
			unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK), 128,
			nl.NewRtAttr(unix.IFA_ADDRESS, rules.PassthroughIPv6().AsSlice()),
			nl.NewRtAttr(unix.IFA_FLAGS, native.AppendUint32(nil, unix.IFA_F_NODAD)))
	})
}

// fastRequests holds the constant requests of a fast check.
var fastRequests struct{ query, add cachedRequest }

// A cachedRequest is encoded on first use. Unlike [sync.OnceValue], it needs no initialization code
// at program start.
type cachedRequest struct {
	once  sync.Once
	bytes []byte
}

// get returns the encoded request. It calls encode on first use.
func (r *cachedRequest) get(encode func() []byte) []byte {
	r.once.Do(func() { r.bytes = encode() })
	return r.bytes
}

// addrAndRulesRequest completes a request about ::6 on lo, and appends a request for the policy
// rules of all families.
func addrAndRulesRequest(
	addr *nl.NetlinkRequest, prefixLen uint8, attributes ...*nl.RtAttr,
) []byte {
	m := nl.NewIfAddrmsg(unix.AF_INET6)
	m.Prefixlen, m.Index = prefixLen, netns.LoopbackIndex
	addr.AddData(m)
	addr.AddData(nl.NewRtAttr(unix.IFA_LOCAL, rules.PassthroughIPv6().AsSlice()))
	for _, a := range attributes {
		addr.AddData(a)
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETRULE, unix.NLM_F_DUMP)
	// With strict checking the kernel rejects the scope, type and protocol that NewRtMsg sets.
	request.AddData(&nl.RtMsg{})
	return append(addr.Serialize(), request.Serialize()...)
}

// addressesRequest returns the request for the addresses of all families.
func addressesRequest() []byte {
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	request.AddData(nl.NewIfAddrmsg(unix.AF_UNSPEC))
	return request.Serialize()
}

// routesRequest returns the request for the routes of a table, or of all tables if table is
// RT_TABLE_UNSPEC.
func routesRequest(f rules.Family, table uint32) []byte {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(addressFamily(f))}})
	if table != unix.RT_TABLE_UNSPEC {
		request.AddData(nl.NewRtAttr(unix.RTA_TABLE, native.AppendUint32(nil, table)))
	}
	return request.Serialize()
}

// routeRequest returns the request for the route of packets to an address.
func routeRequest(a netip.Addr) []byte {
	request, _ := newRouteRequest(a)
	return request.Serialize()
}

// newRouteRequest is like routeRequest. It returns the request and its message for additions.
func newRouteRequest(a netip.Addr) (*nl.NetlinkRequest, *nl.RtMsg) {
	message := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(addressFamily(rules.FamilyOf(a))), Dst_len: uint8(a.BitLen()),
	}}
	if a.Is4() {
		// With strict checking the kernel rejects the flag for IPv6, where it has no effect
		// (inet6_rtm_valid_getroute_req in net/ipv6/route.c).
		message.Flags = unix.RTM_F_LOOKUP_TABLE
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.RTA_DST, a.AsSlice()))
	return request, message
}

// FamilyOf returns the family for AF_INET and AF_INET6, and [rules.Inet] for other numbers.
func FamilyOf(number int) rules.Family {
	switch number {
	case unix.AF_INET:
		return rules.IPv4
	case unix.AF_INET6:
		return rules.IPv6
	}
	return rules.Inet
}
