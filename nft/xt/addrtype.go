package xt

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// addrTypeSizes contains the sizes of struct xt_addrtype_info and xt_addrtype_info_v1.
var addrTypeSizes = [...]int{12, 8}

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

// decodeAddrType decodes a match of the types of source and destination. The model does not support
// types that depend on an interface.
func decodeAddrType(family rules.Family, revision uint32, info []byte) ([]rules.Match, bool) {
	m, ok := decodeAddrTypeMatch(revision, info)
	if !ok || m.LimitIn || m.LimitOut || family == rules.Inet || revision == 0 && family != rules.IPv4 {
		return nil, false
	}
	var found []rules.Match
	for side, types := range m.Types {
		if types == 0 {
			continue // the kernel does not compare the address, even if negated
		}
		if !ModelsAddrTypes(family, types) {
			return nil, false
		}
		found = append(found, rules.MatchAddrType{
			Side: rules.Side(side), Not: m.Not[side], Types: types,
		})
	}
	return found, true
}

// decodeAddrTypeMatch decodes struct xt_addrtype_info or _v1: the sets of types of source and
// destination, and flags, which are two negations in revision 0.
func decodeAddrTypeMatch(revision uint32, info []byte) (m AddrTypeMatch, ok bool) {
	if len(info) < addrTypeSizes[revision] {
		return m, false
	}
	for side := range m.Types {
		m.Types[side] = rules.AddrTypeSet(native.Uint16(info[2*side:]))
	}
	if revision == 0 {
		notSource, notDestination := native.Uint32(info[4:]), native.Uint32(info[8:])
		m.Not = [2]bool{notSource == 1, notDestination == 1}
		ok = notSource <= 1 && notDestination <= 1
	} else {
		flags := native.Uint32(info[4:])
		m.Not = [2]bool{flags&addrTypeNotSource != 0, flags&addrTypeNotDestination != 0}
		m.LimitIn, m.LimitOut = flags&addrTypeLimitIn != 0, flags&addrTypeLimitOut != 0
		ok = flags < addrTypeLimitOut<<1
	}
	return m, ok && (m.Types[0]|m.Types[1])&^allAddrTypes == 0
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

// An AddrTypeMatch is a match addrtype (struct xt_addrtype_info or xt_addrtype_info_v1). If a set
// of types is empty, the match does not compare the address.
type AddrTypeMatch struct {
	Types             [2]rules.AddrTypeSet // of the source and the destination
	Not               [2]bool
	LimitIn, LimitOut bool
}

// AddrTypeNames returns iptables' names of the types, separated by commas.
func AddrTypeNames(types rules.AddrTypeSet) string {
	var names []string
	for t := range rules.ResolvedType + 1 {
		if types.Has(t) {
			names = append(names, strings.ToUpper(t.String()))
		}
	}
	return strings.Join(names, ",")
}

// String returns the text of iptables-save.
func (m AddrTypeMatch) String() string {
	text := "-m addrtype"
	for side, option := range []string{"src", "dst"} {
		if names := AddrTypeNames(m.Types[side]); names != "" {
			text += fmt.Sprintf(" %s--%s-type %s", negation(m.Not[side]), option, names)
		}
	}
	if m.LimitIn {
		text += " --limit-iface-in"
	}
	if m.LimitOut {
		text += " --limit-iface-out"
	}
	return text
}
