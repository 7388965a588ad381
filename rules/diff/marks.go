package diff

import (
	"slices"
	"strconv"

	"github.com/sluice-mesh/sluice/rules"
)

// A markBits is the value of a mark for the packets of a flow: for each bit, from the least
// significant, a set of packets. A packet of the flow is in the set if the bit is 1 in its mark.
// The sets may contain packets that are not in the flow, which have no meaning.
type markBits [32]set

// marks contains one copy of each markBits, so that equal marks are equal pointers.
type marks struct {
	*space
	interned map[markBits]*markBits
	// packet and connection are the marks of entering packets, zero is the mark 0.
	packet, connection, zero *markBits
}

// newMarks returns the marks of the packets that enter the space.
func newMarks(s *space) *marks {
	m := &marks{space: s, interned: make(map[markBits]*markBits, 4)}
	var p, c, z markBits
	for i := range p {
		p[i], c[i], z[i] = s.bit(mark, i), s.bit(connectionMark, i), none
	}
	if s.unmarked && s.hook == rules.Prerouting {
		p = z
	}
	m.packet, m.connection, m.zero = m.intern(p), m.intern(c), m.intern(z)
	return m
}

// intern returns the only copy of the bits.
func (m *marks) intern(b markBits) *markBits {
	if known, ok := m.interned[b]; ok {
		return known
	}
	m.meter.alloc(internedSize)
	m.interned[b] = &b
	return &b
}

// internedSize is the size of the two copies of the bits, and of their entry in the map, in bytes.
const internedSize = 320

// setBits returns the mark (b &^ mask) ^ v.
func (m *marks) setBits(b *markBits, v, mask uint32) *markBits {
	return m.mix(b, nil, ^mask, 0, v)
}

// mix returns the mark (a & maskA) ^ (b & maskB) ^ xor.
func (m *marks) mix(a, b *markBits, maskA, maskB, xor uint32) *markBits {
	m.meter.charge(len(a))
	var mixed markBits
	for i := range mixed {
		bit := none
		if maskA>>i&1 == 1 {
			bit = a[i]
		}
		if maskB>>i&1 == 1 {
			bit = m.xor(bit, b[i])
		}
		if xor>>i&1 == 1 {
			bit = m.not(bit)
		}
		mixed[i] = bit
	}
	return m.intern(mixed)
}

// merge returns the mark that is equal to a for the packets in ofA, and equal to b for the packets
// in ofB. The sets must be disjoint. The mark is not valid for other packets.
func (m *marks) merge(ofA set, a *markBits, ofB set, b *markBits) *markBits {
	if a == b {
		return a
	}
	m.meter.charge(len(a))
	var merged markBits
	for i := range merged {
		switch d := m.xor(a[i], b[i]); {
		case d == none || !m.intersects(ofA, d):
			merged[i] = b[i]
		case !m.intersects(ofB, d):
			merged[i] = a[i]
		default:
			merged[i] = m.ifElse(ofA, a[i], b[i])
		}
	}
	return m.intern(merged)
}

// unknownMark returns a mark whose value is unknown. Marks of variables with equal keys are equal.
// The bits of the first maxUnknownMarks marks are the bits of a field; the bits of other marks are
// variables.
func (m *marks) unknownMark(v variable) *markBits {
	var b markBits
	index := slices.IndexFunc(m.markVariables, func(other variable) bool {
		return other.key == v.key
	})
	if index < 0 && len(m.markVariables) < maxUnknownMarks {
		index = len(m.markVariables)
		m.markVariables = append(m.markVariables, v)
	}
	m.hasUnknowns = true
	for i := range b {
		if index >= 0 {
			// A field lists its bits from the most significant.
			bits := m.bits[firstUnknownMark+field(index)]
			b[i] = m.node(bits[len(bits)-1-i], none, all)
			continue
		}
		bit := v
		bit.key += keySeparator + strconv.Itoa(i)
		b[i] = m.variable(bit)
	}
	return m.intern(b)
}

// equals returns the packets whose mark meets the match.
func (m *marks) equals(b *markBits, match rules.MatchMark) set {
	m.meter.charge(len(b))
	packets := all
	if match.Value&^match.Mask != 0 {
		packets = none
	}
	for i := range b {
		switch {
		case match.Mask>>i&1 == 0 || packets == none:
		case match.Value>>i&1 == 0:
			packets = m.minus(packets, b[i])
		default:
			packets = m.and(packets, b[i])
		}
	}
	return m.negateIf(match.Not, packets)
}

// within returns the packets whose mark is in one of the ranges.
func (m *marks) within(b *markBits, ranges []rules.Range[uint32]) set {
	m.meter.charge(len(ranges))
	return m.valueIn(b[:], value{}, spansOf(ranges, 0))
}

// valueIn returns the packets for which a value is in one of the spans. Each element of bits
// contains the packets in which one bit of the value is 1, from the least significant bit. Callers
// pass all bits of the value, and base 0. In the recursion, base contains the upper bits of the
// value that are already chosen, and bits the lower bits.
func (s *space) valueIn(bits []set, base value, spans []span) set {
	width := len(bits)
	if len(spans) == 0 {
		return none
	}
	if possible := (span{base, base.withLowBits(width)}); spans[0].contains(possible) {
		return all
	}
	s.meter.step()
	middle := base.withBit(width - 1)
	lower, upper := splitSpans(spans, middle)
	return s.ifElse(bits[width-1], s.valueIn(bits[:width-1], middle, upper),
		s.valueIn(bits[:width-1], base, lower))
}

// differs returns the packets whose marks are not equal.
func (m *marks) differs(a, b *markBits) set {
	if a == b {
		return none
	}
	packets := none
	m.meter.charge(len(a))
	for i := range a {
		packets = m.or(packets, m.xor(a[i], b[i]))
	}
	return packets
}

// policyRuleMarks returns the matches of the policy rules of a family on marks.
func policyRuleMarks(r rules.Routing, f rules.Family) []rules.MatchMark {
	var found []rules.MatchMark
	for _, p := range r.Policies {
		if p.Family == f {
			found = append(found, p.Marked())
		}
	}
	return found
}
