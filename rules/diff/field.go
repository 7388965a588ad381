package diff

import (
	"cmp"
	"encoding/binary"
	"math"
	"net/netip"
	"slices"
	"sort"
	"sync"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A field is a part of a packet.
type field uint8

// The fields, in the order of their bits in the diagrams. Addresses are first because their lists
// are long: a list at the top of a diagram is traversed once, and not once for each combination of
// the bits above it.
//
// Fields that constrain each other are adjacent; otherwise the nodes between them would be
// duplicated for each case.
const (
	destination     field = iota
	destinationType       // rules.AddrType
	source
	sourceType
	protocol
	destinationPort
	sourcePort
	icmp // 256 * type + code
	flags
	iface      // the interface through which the packet arrives or leaves: index of its class
	user       // 0 without a socket, kernelSocketUser, or userSocketBit + the user id
	group      // 0 without a user
	noListener // 1 if the host has no transparent socket for the packet
	inAddress  // the interface's address, for redirections at prerouting
	state
	reply          // 1 in the reply direction
	status         // the bits of rules.Status
	newDestination // the destination of a translated connection
	newPort        // the port of a translated connection
	mark
	connectionMark
	firstUnknownMark // the first of several unknown marks
	fieldCount       = firstUnknownMark + maxUnknownMarks
)

// maxUnknownMarks is the number of unknown marks that have a field. The bits of further unknown
// marks are variables after all fields. Comparing such a mark with another mark may exhaust the
// budget, because their bits are far from each other in the diagram.
const maxUnknownMarks = 4

// isUnknownMark reports whether the field is one of the unknown marks.
func isUnknownMark(f field) bool { return f >= firstUnknownMark }

// fieldWidths contains the widths of the fields in bits. The width of addresses depends on the
// family (see newLayout).
var fieldWidths = [fieldCount]int{
	protocol: 8, destinationPort: 16, newPort: 16, sourcePort: 16, icmp: 16, iface: 16, user: 33,
	group: 32, state: 3, reply: 1, status: 6,
	flags: 8, noListener: 1, destinationType: 4, sourceType: 4, mark: 32, connectionMark: 32,
	firstUnknownMark: 32, firstUnknownMark + 1: 32, firstUnknownMark + 2: 32,
	firstUnknownMark + 3: 32,
}

// A layout numbers the bits of all fields, in the order of the diagrams.
type layout struct {
	bits    [fieldCount][]uint32 // the numbers of a field's bits, the most significant bit first
	fieldOf []field              // the field of each bit, by the number of the bit
}

// newLayout returns the layout for addresses of a width in bits.
func newLayout(addressWidth int) *layout {
	l := new(layout)
	width := fieldWidths
	for _, f := range []field{destination, newDestination, source, inAddress} {
		width[f] = addressWidth
	}
	addBit := func(f field) {
		l.bits[f] = append(l.bits[f], uint32(len(l.fieldOf)))
		l.fieldOf = append(l.fieldOf, f)
	}
	for f := range mark {
		for range width[f] {
			addBit(f)
		}
	}
	// The bits of the marks alternate, because otherwise the diagram of the packets with two equal
	// marks would be large.
	for range width[mark] {
		for f := mark; f < fieldCount; f++ {
			addBit(f)
		}
	}
	return l
}

// The layouts of the two families. A layout is not modified after its creation.
var (
	layoutIPv4 = sync.OnceValue(func() *layout { return newLayout(32) })
	layoutIPv6 = sync.OnceValue(func() *layout { return newLayout(128) })
)

func layoutOf(f rules.Family) *layout { return rules.ByFamily(f, layoutIPv4, layoutIPv6)() }

// Values of the field user: userSocketBit is set for a packet with a socket of a user, and
// kernelSocketUser is the value for a packet with a socket of the kernel.
const (
	userSocketBit    = 1 << 32
	kernelSocketUser = 1
)

// A value of a field is a number of up to 128 bits.
type value struct{ high, low uint64 }

// number converts a number to a value.
func number[T ~uint8 | ~uint16 | ~uint32 | ~uint64](n T) value { return value{low: uint64(n)} }

// oneIf returns the value 1 if the condition is true, and otherwise 0.
func oneIf(condition bool) value {
	if condition {
		return value{low: 1}
	}
	return value{}
}

// address converts an address to a value.
func address(a netip.Addr) value {
	b := a.As16()
	v := value{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
	if a.Is4() {
		return value{low: v.low & 0xffffffff}
	}
	return v
}

// address converts the value to an address of a width in bits.
func (v value) address(width int) netip.Addr {
	if width == 32 {
		return netip.AddrFrom4([4]byte{
			byte(v.low >> 24), byte(v.low >> 16), byte(v.low >> 8), byte(v.low),
		})
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], v.high)
	binary.BigEndian.PutUint64(b[8:], v.low)
	return netip.AddrFrom16(b)
}

func (v value) less(w value) bool { return v.high < w.high || v.high == w.high && v.low < w.low }

// withBit returns the value with one bit set. Bit 0 is the least significant.
func (v value) withBit(bit int) value {
	if bit >= 64 {
		v.high |= 1 << (bit - 64)
	} else {
		v.low |= 1 << bit
	}
	return v
}

// withLowBits returns the value with all bits set that are below the given bit.
func (v value) withLowBits(bit int) value {
	switch {
	case bit >= 128:
		return value{^uint64(0), ^uint64(0)}
	case bit >= 64:
		return value{v.high | (1<<(bit-64) - 1), ^uint64(0)}
	}
	v.low |= 1<<bit - 1
	return v
}

// hasBit reports whether the bit is set. Bit 0 is the least significant.
func (v value) hasBit(bit int) bool {
	if bit >= 64 {
		return v.high>>(bit-64)&1 == 1
	}
	return v.low>>bit&1 == 1
}

func (v value) next() value {
	v.low++
	if v.low == 0 {
		v.high++
	}
	return v
}

// A span is a range of values, inclusive.
type span struct{ first, last value }

// contains reports whether all values of the other span are in the span.
func (s span) contains(other span) bool {
	return !other.first.less(s.first) && !s.last.less(other.last)
}

// intersects reports whether a value is in both spans.
func (s span) intersects(other span) bool {
	return !s.last.less(other.first) && !other.last.less(s.first)
}

// mergeSpans sorts spans and merges spans that overlap.
func mergeSpans(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.first.high, b.first.high),
			cmp.Compare(a.first.low, b.first.low))
	})
	merged := spans[:0]
	for _, s := range spans {
		if n := len(merged); n > 0 && !merged[n-1].last.less(s.first) {
			if merged[n-1].last.less(s.last) {
				merged[n-1].last = s.last
			}
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// within returns the packets for which the value of the field is in one of the spans, which are
// sorted and disjoint.
func (s *space) within(f field, spans []span) set {
	if s.single != nil && s.single.known[f] {
		v := s.single.values[f]
		i := sort.Search(len(spans), func(i int) bool { return !spans[i].last.less(v) })
		return allIf(i < len(spans) && spans[i].contains(span{v, v}))
	}
	return s.spansSet(s.bits[f], value{}, spans)
}

// is returns the packets whose field has the value.
func (s *space) is(f field, v value) set { return s.within(f, []span{{v, v}}) }

// addressIn returns the packets whose address in the field is in one of the ranges.
func (s *space) addressIn(f field, ranges []netipx.IPRange) set {
	if s.single != nil && s.single.known[f] {
		return allIf(isIn(s.single.values[f].address(len(s.bits[f])), ranges))
	}
	return cached(&s.ranges, rangesKey{f, keyOf(ranges)}, func() set {
		s.meter.alloc(entrySize)
		return s.within(f, s.addressSpans(ranges))
	})
}

// A rangesKey identifies a list of ranges for a field.
type rangesKey struct {
	field  field
	ranges listKey[netipx.IPRange]
}

// isIn reports whether an address is in one of the ranges, which are sorted.
func isIn(a netip.Addr, ranges []netipx.IPRange) bool {
	i := sort.Search(len(ranges), func(i int) bool { return !ranges[i].To().Less(a) })
	return i < len(ranges) && !a.Less(ranges[i].From())
}

// addressSpans converts ranges of addresses.
func (s *space) addressSpans(ranges []netipx.IPRange) []span {
	s.meter.charge(len(ranges))
	spans := make([]span, len(ranges))
	for i, r := range ranges {
		spans[i] = span{address(r.From()), address(r.To())}
	}
	return spans
}

// bit returns the packets in which bit i of the field is 1. Bit 0 is the least significant.
func (s *space) bit(f field, i int) set {
	if s.single != nil && s.single.known[f] {
		return allIf(s.single.values[f].hasBit(i))
	}
	return s.node(s.bits[f][len(s.bits[f])-1-i], none, all)
}

// spansSet returns the packets for which a value is in one of the spans. Callers pass the numbers
// of all bits of the value, and base 0. In the recursion, base contains the upper bits of the value
// that are already chosen, and bits are the numbers of the lower bits.
func (s *space) spansSet(bits []uint32, base value, spans []span) set {
	if len(spans) == 0 {
		return none
	}
	width := len(bits)
	if possible := (span{base, base.withLowBits(width)}); spans[0].contains(possible) {
		return all
	}
	middle := base.withBit(width - 1)
	lower, upper := splitSpans(spans, middle)
	no := s.spansSet(bits[1:], base, lower)
	return s.node(bits[0], no, s.spansSet(bits[1:], middle, upper))
}

// splitSpans returns the spans with values below the middle, and the spans with values from the
// middle on. A span on both sides of the middle is in both results.
func splitSpans(spans []span, middle value) (lower, upper []span) {
	first := sort.Search(len(spans), func(i int) bool { return !spans[i].first.less(middle) })
	last := sort.Search(len(spans), func(i int) bool { return !spans[i].last.less(middle) })
	return spans[:first], spans[last:]
}

// spans returns the values of a set that depends only on the field. It is the inverse of within.
func (s *space) spans(f field, packets set) []span { return s.firstSpans(f, packets, math.MaxInt) }

// firstSpans returns the first spans of a set that depends only on the field, at most limit of
// them: a condition on the lowest bit of a mark has two billion spans.
func (s *space) firstSpans(f field, packets set, limit int) []span {
	var found []span
	var visit func(bits []uint32, base value, packets set)
	visit = func(bits []uint32, base value, packets set) {
		if packets == none || len(found) > limit {
			return
		}
		s.meter.step()
		if packets == all {
			last := base.withLowBits(len(bits))
			if n := len(found); n > 0 && found[n-1].last.next() == base {
				found[n-1].last = last
			} else {
				found = append(found, span{base, last})
			}
			return
		}
		no, yes := packets, packets
		if n := s.root(packets); n.bit == bits[0] {
			no, yes = n.no, n.yes
		}
		visit(bits[1:], base, no)
		visit(bits[1:], base.withBit(len(bits)-1), yes)
	}
	visit(s.bits[f], value{}, packets)
	return found[:min(len(found), limit)]
}

// maskedEquals returns the packets whose field is equal to the value in the bits of the mask.
func (s *space) maskedEquals(f field, v, mask uint32) set {
	if v&^mask != 0 {
		return none
	}
	packets := all
	for i := range s.bits[f] { // from the least significant bit, which is the lowest in the diagram
		switch {
		case mask>>i&1 == 0:
		case v>>i&1 == 1:
			packets = s.and(s.bit(f, i), packets)
		default:
			packets = s.minus(packets, s.bit(f, i))
		}
	}
	return packets
}
