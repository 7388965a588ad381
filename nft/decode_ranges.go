package nft

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// addrRanges returns the normalized address ranges of an interval set of addresses. It returns nil
// for any other set, and for a set that changes or that the model cannot represent. A set may have
// thousands of elements. Therefore addrRanges calls load and sort only if the kernel has not listed
// the elements in descending order.
func (s *decodedSet) addrRanges() []netipx.IPRange {
	if s.ranges != nil || s.rangesComputed || !s.interval || s.hasSeveralFields() || s.isDynamic ||
		s.unsupportedReason != "" {
		return s.ranges
	}
	s.rangesComputed = true
	d := rangeBuilder{ranges: make([]netipx.IPRange, 0, s.size()/2+1)}
	ok := s.lists != nil
	format := newPlainFormat(s.keyLength)
	for _, list := range s.lists {
		list.Each(func(_ uint16, value []byte) {
			el, decoded := format.read(value)
			if !decoded {
				el, decoded = s.read(value)
			}
			ok = ok && decoded && d.add(el)
		})
	}
	if s.unsupportedReason != "" || s.catchall != nil {
		return nil
	}
	if !ok { // the elements are not in descending order
		s.load()
		s.sort()
		d = rangeBuilder{ranges: d.ranges[:0]}
		for _, el := range slices.Backward(s.elements) {
			if !d.add(el) {
				return nil
			}
		}
	}
	slices.Reverse(d.ranges)
	s.ranges = d.ranges
	return s.ranges
}

// A rangeBuilder builds address ranges from the elements of an interval set, which are added in
// descending order.
type rangeBuilder struct {
	ranges []netipx.IPRange
	above  netip.Addr // the key of the previous element, invalid before the first one
	isEnd  bool       // the previous element was the end of an interval
}

// add adds the next element. It returns false if the key is not an address, or if the order is not
// descending.
func (d *rangeBuilder) add(el element) bool {
	addr, ok := netip.AddrFromSlice(el.key)
	if !ok {
		return false
	}
	n, first := len(d.ranges), !d.above.IsValid()
	if !first {
		order := addr.Compare(d.above)
		if addr.BitLen() != d.above.BitLen() || order > 0 || order == 0 && (d.isEnd || !el.end) {
			return false
		}
	}
	switch {
	case el.end:
	case n > 0 && d.ranges[n-1].From() == d.above: // adjacent ranges
		d.ranges[n-1] = netipx.IPRangeFrom(addr, d.ranges[n-1].To())
	case first:
		lastAddr := netipx.RangeOfPrefix(netip.PrefixFrom(addr, 0)).To()
		d.ranges = append(d.ranges, netipx.IPRangeFrom(addr, lastAddr))
	default:
		d.ranges = append(d.ranges, netipx.IPRangeFrom(addr, d.above.Prev()))
	}
	d.above, d.isEnd = addr, el.end
	return true
}
