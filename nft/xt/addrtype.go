package xt

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// Sizes of struct xt_addrtype_info and xt_addrtype_info_v1.
const (
	addrTypeSize0 = 12
	addrTypeSize1 = 8
)

// Flags of struct xt_addrtype_info_v1. The first two negate the match of a side, and the others
// limit the lookup to an interface.
const (
	addrTypeNotSource      = 1 << 0
	addrTypeNotDestination = 1 << 1
	addrTypeLimitIn        = 1 << 2
	addrTypeLimitOut       = 1 << 3
)

// allAddrTypes contains the types that the model supports.
const allAddrTypes = rules.AddrTypeSet(1)<<(rules.ResolvedType+1) - 1

// decodeAddrType decodes struct xt_addrtype_info or _v1: the sets of types of source and
// destination, and their negations, which are separate fields in revision 0. The model does not
// support types that depend on an interface.
func decodeAddrType(family rules.Family, revision uint32, info []byte) ([]rules.Match, bool) {
	size := addrTypeSize1
	if revision == 0 {
		size = addrTypeSize0
	}
	if len(info) < size || family == rules.Inet || revision == 0 && family != rules.IPv4 {
		return nil, false
	}
	var negated [2]bool
	if revision == 0 {
		notSource, notDestination := native.Uint32(info[4:]), native.Uint32(info[8:])
		if notSource > 1 || notDestination > 1 {
			return nil, false
		}
		negated = [2]bool{notSource == 1, notDestination == 1}
	} else {
		flags := native.Uint32(info[4:])
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

// ModelsAddrTypes reports whether the model can represent a match of the set of types. The model
// represents a set that the kernel compares with the type of a route, which is every set in IPv4.
// In IPv6, match_type6 (net/netfilter/xt_addrtype.c) interprets some sets differently: UNICAST is
// every address that is not multicast, including local addresses; UNICAST,LOCAL is the intersection
// of both; and UNREACHABLE is every rejecting route.
func ModelsAddrTypes(family rules.Family, types rules.AddrTypeSet) bool {
	return family != rules.IPv6 || types&^rules.AddrTypes(rules.Local, rules.Anycast) == 0 ||
		types == rules.AddrTypes(rules.Multicast)
}

// An AddrTypeMatch is a match addrtype that the model does not represent (struct
// xt_addrtype_info_v1). If a set of types is empty, the match does not compare the address.
type AddrTypeMatch struct {
	Types             [2]rules.AddrTypeSet // of the source and the destination
	Not               [2]bool
	LimitIn, LimitOut bool
}

// String returns the text of iptables-save.
func (m AddrTypeMatch) String() string {
	text := "-m addrtype"
	for side, option := range []string{"src", "dst"} {
		if m.Types[side] == 0 {
			continue
		}
		var names []string
		for t := range rules.ResolvedType + 1 {
			if m.Types[side].Has(t) {
				names = append(names, strings.ToUpper(t.String()))
			}
		}
		text += fmt.Sprintf(" %s--%s-type %s", negation(m.Not[side]), option, strings.Join(names, ","))
	}
	if m.LimitIn {
		text += " --limit-iface-in"
	}
	if m.LimitOut {
		text += " --limit-iface-out"
	}
	return text
}

// addrTypeText decodes struct xt_addrtype_info_v1.
func addrTypeText(data []byte) (string, bool) {
	flags := native.Uint32(data[4:])
	m := AddrTypeMatch{
		Not: [2]bool{flags&addrTypeNotSource != 0, flags&addrTypeNotDestination != 0},
		Types: [2]rules.AddrTypeSet{
			rules.AddrTypeSet(native.Uint16(data)), rules.AddrTypeSet(native.Uint16(data[2:])),
		},
		LimitIn: flags&addrTypeLimitIn != 0, LimitOut: flags&addrTypeLimitOut != 0,
	}
	const known = addrTypeNotSource | addrTypeNotDestination | addrTypeLimitIn | addrTypeLimitOut
	return m.String(), (m.Types[0]|m.Types[1])&^allAddrTypes == 0 && flags&^known == 0
}
