package xt

import (
	"errors"
	"net/netip"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// Flags of struct xt_iprange_mtinfo. The flag that negates the match of a side is the flag of the
// side, shifted left by rangeNegationShift.
const (
	rangeSource        = 1 << 0
	rangeDestination   = 1 << 1
	rangeNegationShift = 4
)

const (
	addrSize      = 16             // union nf_inet_addr; an IPv4 address uses the first 4 bytes
	addrRangeSize = 4*addrSize + 4 // struct xt_iprange_mtinfo
)

// decodeAddr decodes an address of the family, which must not be Inet.
func decodeAddr(family rules.Family, b []byte) netip.Addr {
	if family == rules.IPv4 {
		return netip.AddrFrom4([4]byte(b))
	}
	return netip.AddrFrom16([16]byte(b))
}

// familySize returns the size of an address of the family, which must not be Inet.
func familySize(f rules.Family) int {
	if f == rules.IPv4 {
		return 4
	}
	return 16
}

// AddrRange returns the matches of a match iprange on one side, for a range of valid addresses of
// one family. If the range is reversed, the kernel finds no address in it (iprange_mt4 in
// net/netfilter/xt_iprange.c): the match has no effect if it is negated, and otherwise matches no
// packet.
func AddrRange(side rules.Side, negated bool, r netipx.IPRange) []rules.Match {
	switch {
	case r.IsValid():
		return []rules.Match{rules.MatchAddr{Side: side, Not: negated, Ranges: []netipx.IPRange{r}}}
	case negated:
		return nil
	}
	return []rules.Match{rules.MatchTuple{}}
}

// decodeAddrRanges decodes struct xt_iprange_mtinfo.
func decodeAddrRanges(family rules.Family, info []byte) ([]rules.Match, bool) {
	if len(info) < addrRangeSize || family == rules.Inet {
		return nil, false
	}
	flags := info[4*addrSize]
	var found []rules.Match
	for side, bit := range []byte{rangeSource, rangeDestination} {
		if flags&bit == 0 {
			continue
		}
		bounds := info[2*side*addrSize:]
		r := netipx.IPRangeFrom(decodeAddr(family, bounds), decodeAddr(family, bounds[addrSize:]))
		negated := flags&(bit<<rangeNegationShift) != 0
		found = append(found, AddrRange(rules.Side(side), negated, r)...)
	}
	const known = rangeSource | rangeDestination
	return found, flags&known != 0 && flags&^(known|known<<rangeNegationShift) == 0
}

// encodeAddrRange encodes one range of addresses, which need not be a prefix.
func encodeAddrRange(m rules.MatchAddr) (Extension, error) {
	if len(m.Ranges) != 1 || !m.Ranges[0].IsValid() {
		return Extension{}, errors.New("an iprange match must have exactly one range of addresses")
	}
	bit := byte(rangeSource) << m.Side
	data := make([]byte, addrRangeSize)
	bounds := data[2*int(m.Side)*addrSize:]
	copy(bounds, m.Ranges[0].From().AsSlice())
	copy(bounds[addrSize:], m.Ranges[0].To().AsSlice())
	data[4*addrSize] = bit | flag(m.Not, bit<<rangeNegationShift)
	return Extension{Name: "iprange", Revision: 1, Data: data}, nil
}
