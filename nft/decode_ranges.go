package nft

import (
	"net/netip"
	"slices"

	"go4.org/netipx"
)

// addrRanges returns the addresses that a set of intervals of them holds, normalised, nil if it is
// none such. They may be thousands: hence without keys, and in the kernel's order without sorting.
func (s *decodedSet) addrRanges() []netipx.IPRange {
	if s.ranges != nil || s.noRanges || !s.interval || s.concat || s.changes || s.unknown != "" {
		return s.ranges
	}
	s.noRanges = true
	d := descent{ranges: make([]netipx.IPRange, 0, s.size()/2+1)}
	ok := s.lists != nil
	usual := newPlain(s.keyLength)
	for _, list := range s.lists {
		list.Each(func(_ uint16, value []byte) {
			el, readable := usual.read(value)
			if !readable {
				el, readable = s.read(value)
			}
			ok = ok && readable && d.add(el)
		})
	}
	if s.unknown != "" || s.catchall != nil {
		return nil
	}
	if !ok { // in another order
		s.load()
		s.sort()
		d = descent{ranges: d.ranges[:0]}
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

// A descent makes ranges of the elements of a set of intervals, from the highest to the lowest.
type descent struct {
	ranges []netipx.IPRange
	above  netip.Addr // the key of the element before, not valid for the first one
	end    bool       // that one was
}

// add adds the next element. It fails for one that is no address, or not the next lower.
func (d *descent) add(el element) bool {
	at, ok := netip.AddrFromSlice(el.key)
	if !ok {
		return false
	}
	n, first := len(d.ranges), !d.above.IsValid()
	if !first {
		order := at.Compare(d.above)
		if at.BitLen() != d.above.BitLen() || order > 0 || order == 0 && (d.end || !el.end) {
			return false
		}
	}
	switch {
	case el.end:
	case n > 0 && d.ranges[n-1].From() == d.above: // they touch
		d.ranges[n-1] = netipx.IPRangeFrom(at, d.ranges[n-1].To())
	case first:
		d.ranges = append(d.ranges, netipx.IPRangeFrom(at, netipx.RangeOfPrefix(netip.PrefixFrom(at, 0)).To()))
	default:
		d.ranges = append(d.ranges, netipx.IPRangeFrom(at, d.above.Prev()))
	}
	d.above, d.end = at, el.end
	return true
}
