package diff

import (
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// Contains tells whether a packet that is possible (see [Possible]) belongs to the class.
func (c *Class) Contains(p rules.Packet) bool {
	if p.Hook != c.space.hook || p.Family() != c.space.family {
		return false
	}
	values := c.space.valuesOf(p)
	for f, condition := range c.box {
		if !c.space.holds(condition, field(f), values[f]) {
			return false
		}
	}
	return true
}

// holds tells whether the value fulfils a condition on its field.
func (s *space) holds(condition set, f field, v value) bool {
	for i, bit := range s.bits[f] {
		n := s.nodes[condition]
		switch {
		case n.bit != bit:
		case v.has(len(s.bits[f]) - 1 - i):
			condition = n.yes
		default:
			condition = n.no
		}
	}
	return condition == all
}

// valuesOf is the inverse of packet.
func (s *space) valuesOf(p rules.Packet) [fieldCount]value {
	v := [fieldCount]value{
		destination: address(p.Destination.Addr()), source: address(p.Source.Addr()), protocol: number(p.Protocol),
		destinationPort: number(p.Destination.Port()), sourcePort: number(p.Source.Port()),
		device: number(uint32(s.deviceOf(p))), state: number(p.State), flags: number(p.Flags),
		mark: number(p.Mark), connectionMark: number(p.ConntrackMark),
	}
	if p.NoListener {
		v[listener] = number[uint8](1)
	}
	if p.Owner != nil {
		v[user], v[group] = number(withSocket+uint64(p.Owner.UID)), number(p.Owner.GID)
	}
	return v
}

// deviceOf returns the number of the class of a packet's interface.
func (s *space) deviceOf(p rules.Packet) int {
	name := p.InInterface
	if s.hook == rules.Output {
		name = p.OutInterface
	}
	return slices.IndexFunc(s.devices, func(c deviceClass) bool {
		return (name == loopback) == (c.example == loopback) && !slices.ContainsFunc(s.devices, func(o deviceClass) bool {
			return o.name.Contains(name) != o.name.Contains(c.example)
		})
	})
}
