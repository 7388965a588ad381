package diff

import (
	"encoding/binary"
	"math"
	"net/netip"
	"sort"
)

// A field is one part of a packet.
type field uint8

// The fields, in the order in which the diagrams ask for their bits. Addresses come first: there are long lists of them, and a list
// on top of the diagram is walked once, not once for each combination of what stands above it.
const (
	destination field = iota
	source
	protocol
	destinationPort
	sourcePort
	device // the interface by which the packet comes or leaves, as the number of its class
	user   // 0 without a socket, else withSocket and the id
	group  // 0 without a socket
	state
	flags
	listener // 1 if a transparent socket is missing
	mark
	connectionMark
	fieldCount
)

// withSocket is set in the user of a packet that has a socket.
const withSocket = 1 << 32

// A value of a field is a number of up to 128 bits.
type value struct{ high, low uint64 }

func number[T ~uint8 | ~uint16 | ~uint32 | ~uint64](n T) value { return value{low: uint64(n)} }

func address(a netip.Addr) value {
	b := a.As16()
	v := value{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
	if a.Is4() {
		return value{low: v.low & 0xffffffff}
	}
	return v
}

// address is the inverse of the function of that name.
func (v value) address(width int) netip.Addr {
	if width == 32 {
		return netip.AddrFrom4([4]byte{byte(v.low >> 24), byte(v.low >> 16), byte(v.low >> 8), byte(v.low)})
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], v.high)
	binary.BigEndian.PutUint64(b[8:], v.low)
	return netip.AddrFrom16(b)
}

func (v value) less(w value) bool { return v.high < w.high || v.high == w.high && v.low < w.low }

// with returns the value with the bit, counted from the least significant.
func (v value) with(bit int) value {
	if bit >= 64 {
		v.high |= 1 << (bit - 64)
	} else {
		v.low |= 1 << bit
	}
	return v
}

// filled returns the value with all the bits below one.
func (v value) filled(bit int) value {
	switch {
	case bit >= 128:
		return value{^uint64(0), ^uint64(0)}
	case bit >= 64:
		return value{v.high | (1<<(bit-64) - 1), ^uint64(0)}
	}
	v.low |= 1<<bit - 1
	return v
}

func (v value) has(bit int) bool {
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

// A span is all values from the first to the last.
type span struct{ first, last value }

// within returns the packets of which the field has a value in one of the spans, which are in ascending order and do not overlap.
func (s *space) within(f field, spans []span) set {
	return s.tree(s.bits[f], value{}, spans)
}

// is returns the packets of which the field has the value.
func (s *space) is(f field, v value) set { return s.within(f, []span{{v, v}}) }

// tree returns the set for the values that begin with those bits of base which are not in bits.
func (s *space) tree(bits []uint32, base value, spans []span) set {
	if len(spans) == 0 {
		return none
	}
	width := len(bits)
	if last := base.filled(width); !base.less(spans[0].first) && !spans[0].last.less(last) {
		return all
	}
	middle := base.with(width - 1)
	lower := sort.Search(len(spans), func(i int) bool { return !spans[i].first.less(middle) })
	upper := sort.Search(len(spans), func(i int) bool { return !spans[i].last.less(middle) })
	no := s.tree(bits[1:], base, spans[:lower])
	return s.node(bits[0], no, s.tree(bits[1:], middle, spans[upper:]))
}

// spans is the inverse of within, for a set that depends on nothing but the field.
func (s *space) spans(f field, packets set) []span { return s.firstSpans(f, packets, math.MaxInt) }

// firstSpans returns the spans up to a number of them: a single bit of a mark makes two billion.
func (s *space) firstSpans(f field, packets set, most int) []span {
	var found []span
	var visit func(bits []uint32, base value, packets set)
	visit = func(bits []uint32, base value, packets set) {
		if packets == none || len(found) > most {
			return
		}
		if packets == all {
			last := base.filled(len(bits))
			if n := len(found); n > 0 && found[n-1].last.next() == base {
				found[n-1].last = last
			} else {
				found = append(found, span{base, last})
			}
			return
		}
		no, yes := packets, packets
		if n := s.nodes[packets]; n.bit == bits[0] {
			no, yes = n.no, n.yes
		}
		visit(bits[1:], base, no)
		visit(bits[1:], base.with(len(bits)-1), yes)
	}
	visit(s.bits[f], value{}, packets)
	return found[:min(len(found), most)]
}

// having returns the packets of which the bits of the field under the mask are those of the value.
func (s *space) having(f field, v, mask uint32) set {
	if v&^mask != 0 {
		return none
	}
	packets, bits := all, s.bits[f]
	for i := range bits { // from the least significant bit, which is the lowest in the diagram
		bit := bits[len(bits)-1-i]
		switch {
		case mask>>i&1 == 0:
		case v>>i&1 == 1:
			packets = s.node(bit, none, packets)
		default:
			packets = s.node(bit, packets, none)
		}
	}
	return packets
}
