package xt

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Sizes of struct xt_addrtype_info and xt_addrtype_info_v1.
const (
	addrTypeSize0 = 12
	addrTypeSize1 = 8
)

// Flags of struct xt_addrtype_info_v1. Other flags limit the lookup to an interface. Revision 0 has
// a separate field for each.
const (
	addrTypeNotSource      = 1 << 0
	addrTypeNotDestination = 1 << 1
)

// allAddrTypes contains the types that the model supports.
const allAddrTypes = rules.AddrTypeSet(1)<<(rules.ResolvedType+1) - 1

// decodeAddrType decodes struct xt_addrtype_info or _v1: the sets of types of source and
// destination, and their negation. The model does not support types that depend on an interface.
func decodeAddrType(family rules.Family, revision uint32, info []byte) ([]rules.Match, bool) {
	size := addrTypeSize1
	if revision == 0 {
		size = addrTypeSize0
	}
	if len(info) < size || family == rules.Inet || revision == 0 && family != rules.IPv4 {
		return nil, false
	}
	var negated [2]bool
	flags := native.Uint32(info[4:])
	if revision == 0 {
		other := native.Uint32(info[8:])
		if flags > 1 || other > 1 {
			return nil, false
		}
		negated = [2]bool{flags == 1, other == 1}
	} else {
		if flags&^(addrTypeNotSource|addrTypeNotDestination) != 0 {
			return nil, false
		}
		negated = [2]bool{flags&addrTypeNotSource != 0, flags&addrTypeNotDestination != 0}
	}
	var found []rules.Match
	for side := range 2 {
		types := rules.AddrTypeSet(native.Uint16(info[2*side:]))
		if types == 0 {
			continue // the kernel does not compare the address, even if negated
		}
		if types&^allAddrTypes != 0 || !ModelsAddrTypes(family, types) {
			return nil, false
		}
		found = append(found, rules.MatchAddrType{
			Side: rules.Side(side), Not: negated[side], Types: types,
		})
	}
	return found, true
}

// ModelsAddrTypes reports whether the kernel compares the set of types with the type of a route, as
// it does for every set in IPv4. For other sets in IPv6 match_type6 (net/netfilter/xt_addrtype.c)
// differs: UNICAST is every address that is not multicast, including local addresses; UNICAST,LOCAL
// is the intersection of both; and UNREACHABLE is every rejecting route.
func ModelsAddrTypes(family rules.Family, types rules.AddrTypeSet) bool {
	return family != rules.IPv6 || types&^rules.AddrTypes(rules.Local, rules.Anycast) == 0 ||
		types == rules.AddrTypes(rules.Multicast)
}

// Flags of struct xt_socket_mtinfo1, 2 and 3. A third flag, XT_SOCKET_RESTORESKMARK, sets the mark
// of the packet.
const (
	socketTransparent = 1 << 0
	socketNoWildcard  = 1 << 1
)

// decodeSocket decodes a match of transparent sockets.
func decodeSocket(info []byte) ([]rules.Match, bool) {
	if len(info) < 1 {
		return nil, false
	}
	switch info[0] {
	case socketTransparent:
		return []rules.Match{rules.MatchSocket{}}, true
	case socketTransparent | socketNoWildcard:
		return []rules.Match{rules.MatchSocket{Kind: "nowildcard"}}, true
	}
	return nil, false
}

// reversePathKinds contains iptables' names of the flags of struct xt_rpfilter_info, from bit 0.
var reversePathKinds = [...]string{"loose", "validmark", "accept-local"}

// reversePathInvert is the flag that negates the match, which is the last flag.
const reversePathInvert = 1 << 3

// decodeReversePath decodes struct xt_rpfilter_info.
func decodeReversePath(info []byte) ([]rules.Match, bool) {
	if len(info) < 1 || info[0] >= reversePathInvert<<1 {
		return nil, false
	}
	var kinds []string
	for i, kind := range reversePathKinds {
		if info[0]&(1<<i) != 0 {
			kinds = append(kinds, kind)
		}
	}
	return []rules.Match{rules.MatchReversePath{
		Not: info[0]&reversePathInvert != 0, Kind: strings.Join(kinds, " "),
	}}, true
}
