package diff

import "github.com/sluice-mesh/sluice/rules"

// A markValue is a mark after some rules: each of its bits is that bit of the mark which the packet came with, or of the mark
// which its connection had then, or a constant.
type markValue struct {
	packet, connection uint32 // the bits that are those of the packet's or the connection's mark
	ones               uint32 // of the others, those that are 1
}

// The marks as the packet enters.
var (
	packetMark = markValue{packet: ^uint32(0)}
	connMark   = markValue{connection: ^uint32(0)}
)

// set returns the mark after its bits in the mask were replaced by those of the value.
func (m markValue) set(v, mask uint32) markValue {
	mask |= v
	return markValue{m.packet &^ mask, m.connection &^ mask, m.ones&^mask | v}
}

// bitIs returns the packets of which a bit of the mark, counted from the least significant, is 1.
func (s *space) bitIs(m markValue, i int) set {
	switch {
	case m.packet>>i&1 == 1:
		return s.node(s.bits[mark][31-i], none, all)
	case m.connection>>i&1 == 1:
		return s.node(s.bits[connectionMark][31-i], none, all)
	case m.ones>>i&1 == 1:
		return all
	}
	return none
}

// markMatches returns the packets of which the mark fulfils the match.
func (s *space) markMatches(m markValue, match rules.MatchMark) set {
	packets := all
	if match.Value&^match.Mask != 0 {
		packets = none
	}
	for i := range 32 {
		if match.Mask>>i&1 == 0 || packets == none {
			continue
		}
		bit := s.bitIs(m, i)
		if match.Value>>i&1 == 0 {
			bit = s.not(bit)
		}
		packets = s.and(packets, bit)
	}
	if match.Not {
		return s.not(packets)
	}
	return packets
}

// sameMark returns the packets of which the two marks are equal.
func (s *space) sameMark(m, n markValue) set {
	packets := all
	for i := range 32 {
		a, b := s.bitIs(m, i), s.bitIs(n, i)
		packets = s.minus(packets, s.or(s.minus(a, b), s.minus(b, a)))
	}
	return packets
}
