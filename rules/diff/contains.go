package diff

import (
	"maps"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Contains reports whether a possible packet (see [Possible]) belongs to the class for at least one
// result of the random matches and, if earlier packets of its connection were translated, for at
// least one destination of this translation. It is safe for concurrent use.
func (c *Class) Contains(p rules.Packet) bool {
	if p.Hook != c.space.hook || p.Family() != c.space.family {
		return false
	}
	values := valuesOf(p)
	values[iface] = number(uint32(c.space.interfaces.classOf(p.Interface())))
	// The classes contain no packets outside the scope of the comparison.
	if c.space.contains(c.space.excluded, &values) ||
		c.redirects && c.space.excludesDeprecated() && isDeprecated(p.Destination.Addr()) ||
		!c.space.untracked && c.space.contains(c.entersUntracked, &values) ||
		!c.space.kernelPackets && c.space.contains(c.sentByKernel, &values) {
		return false
	}
	isRetranslated := c.space.contains(c.retranslated, &values)
	for f, condition := range c.box.fields {
		if isRetranslated && (field(f) == newDestination || field(f) == newPort) {
			continue // the packet does not state the value, and the condition allows one
		}
		if !c.space.contains(condition, &values) {
			return false
		}
	}
	packet := onePacket{Packet: p}
	given := maps.Clone(c.space.given)
	for _, l := range c.box.literals {
		given[c.space.variableList[l.variable].key] = l.value
	}
	for key, want := range given {
		if value, ok := packet.hostFactValue(key); ok && value != want {
			return false
		}
	}
	return true
}

// contains reports whether a set that depends only on fields contains the packets with the values.
func (s *space) contains(packets set, values *[fieldCount]value) bool {
	for packets != none && packets != all {
		n := s.root(packets)
		f := s.fieldOf[n.bit]
		i, _ := slices.BinarySearch(s.bits[f], n.bit)
		if packets = n.no; values[f].hasBit(len(s.bits[f]) - 1 - i) {
			packets = n.yes
		}
	}
	return packets == all
}
