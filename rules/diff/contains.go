package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Contains reports whether a possible packet (see [Possible]) belongs to the class for at least one
// result of the random matches. It is safe for concurrent use.
func (c *Class) Contains(p rules.Packet) bool {
	if p.Hook != c.space.hook || p.Family() != c.space.family {
		return false
	}
	values := valuesOf(p)
	values[iface] = number(uint32(c.space.interfaceClassOf(p)))
	if c.redirects && c.space.excludesDeprecated() && isDeprecated(p.Destination.Addr()) {
		return false
	}
	if c.space.contains(c.space.excluded, &values) {
		return false
	}
	// The classes contain no packets outside the scope of the comparison.
	if !c.space.untracked && c.space.contains(c.entersUntracked, &values) {
		return false
	}
	if !c.space.kernelPackets && c.space.contains(c.sentByKernel, &values) {
		return false
	}
	for f, condition := range c.box.fields {
		if !c.space.meetsCondition(condition, field(f), values[f]) {
			return false
		}
	}
	packet := onePacket{Packet: p}
	for key, given := range c.space.given {
		if value, ok := packet.hostFactValue(key); ok && value != given {
			return false
		}
	}
	for _, l := range c.box.literals {
		key := c.space.variableList[l.variable].key
		if value, ok := packet.hostFactValue(key); ok && value != l.value {
			return false
		}
	}
	return true
}

// contains reports whether a set that depends only on fields contains a packet with the values.
func (s *space) contains(packets set, values *[fieldCount]value) bool {
	for packets != none && packets != all {
		n := s.root(packets)
		f := s.fieldOf[n.bit]
		if packets = n.no; values[f].hasBit(len(s.bits[f]) - 1 - slices.Index(s.bits[f], n.bit)) {
			packets = n.yes
		}
	}
	return packets == all
}

// meetsCondition reports whether the value meets a condition on its field.
func (s *space) meetsCondition(condition set, f field, v value) bool {
	for i, bit := range s.bits[f] {
		n := s.root(condition)
		switch {
		case n.bit != bit:
		case v.hasBit(len(s.bits[f]) - 1 - i):
			condition = n.yes
		default:
			condition = n.no
		}
	}
	return condition == all
}

// interfaceClassOf returns the number of the class of a packet's interface.
func (s *space) interfaceClassOf(p rules.Packet) int {
	name := p.InInterface
	if s.hook == rules.Output {
		name = p.OutInterface
	}
	return s.interfaces.classOf(name)
}
