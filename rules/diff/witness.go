package diff

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// typicalValues returns typical values of a field for an example, the most typical first. chosen
// contains the values of the fields that precede this field in choiceOrder.
func (s *space) typicalValues(f field, chosen *[fieldCount]value) []value {
	switch f {
	case protocol:
		return []value{number(rules.TCP), number(rules.UDP), number(rules.ICMP)}
	case destinationPort:
		return []value{number[uint32](8080), number[uint32](80), number[uint32](443), {}}
	case sourcePort:
		return []value{number[uint32](40000), {}}
	case user:
		return []value{
			number[uint64](userSocketBit + 1000),
			number[uint64](userSocketBit + rules.DefaultProxyID),
			{},
		}
	case group:
		return []value{number[uint32](1000), number[uint32](rules.DefaultProxyID), {}}
	case flags:
		if chosen[state] != number(rules.New) {
			return []value{number(rules.ACK), {}}
		}
		return []value{number(rules.SYN), number(rules.ACK), {}}
	case destinationType:
		return s.typicalTypes(chosen[destination])
	case sourceType:
		return s.typicalTypes(chosen[source])
	case inAddress:
		return append(s.typicalAddresses(destination, chosen), value{})
	case icmp:
		requests := rules.ByFamily(s.family, rules.ICMPRequests, rules.ICMPv6Requests)
		return []value{number(uint16(requests[0]) << 8), {}} // an echo request
	case iface:
		return s.typicalInterfaces()
	case source, destination:
		return s.typicalAddresses(f, chosen)
	}
	return []value{{}}
}

func (s *space) typicalInterfaces() []value {
	var values []value
	for i, c := range s.interfaces.classes {
		n := number(uint32(i))
		switch {
		case c.example == "eth0":
			values = slices.Insert(values, 0, n)
		case c.example != loopback && len(values) <= maxTypicalInterfaces:
			values = append(values, n)
		}
	}
	return values
}

// maxTypicalInterfaces is the maximum number of interfaces to try in addition to eth0.
const maxTypicalInterfaces = 64

// typicalAddresses returns typical addresses of a pod and of another machine; on lo, only
// addresses of the pod.
func (s *space) typicalAddresses(f field, chosen *[fieldCount]value) []value {
	pod := address(netip.MustParseAddr(podAddress(s.family)))
	switch name := s.interfaces.classes[chosen[iface].low].example; {
	case name == loopback:
		return []value{pod, address(s.loopbackAddress())}
	case (f == source) != (s.hook == rules.Output):
		other := rules.ByFamily(s.family, "192.0.2.10", "2001:db8::10")
		return []value{address(netip.MustParseAddr(other))}
	}
	return []value{pod}
}

// typicalTypes returns typical types of an address.
func (s *space) typicalTypes(addr value) []value {
	a := addr.address(len(s.bits[destination]))
	if a.IsLoopback() || a.String() == podAddress(s.family) {
		return []value{number(rules.Local), number(rules.Unicast)}
	}
	return []value{number(rules.Unicast), number(rules.Local)}
}

// podAddress returns the address of the pod in examples.
func podAddress(f rules.Family) string {
	return rules.ByFamily(f, "10.244.1.5", "fd00:10:244:1::5")
}

// typicalRoutes returns the packets with each typical combination of destination and interface, the
// most typical combination first.
func (s *space) typicalRoutes() []set {
	local := s.matchSet(addresses(rules.Destination, s.loopbackPrefix()), &view{})
	return []set{
		s.not(s.or(local, s.overLoopback)), s.minus(s.overLoopback, local),
		s.and(s.overLoopback, local),
	}
}

// choiceOrder is the order in which the fields of an example are chosen: the most informative
// first.
var choiceOrder = []field{
	protocol, state, reply, status, iface, user, group, destinationPort, destination, source,
	sourcePort, flags, icmp, mark, connectionMark,
	noListener, destinationType, sourceType, inAddress, newDestination, newPort,
}

// A choice is a set of packets from which an example is chosen: the intersection of the fields
// packets and possible. The intersection is not computed, because its diagram may be large.
// Therefore narrow restricts only packets.
type choice struct {
	*space
	packets, possible set
}

// narrow restricts the choice to a set, unless the result would be empty. It reports whether the
// choice was restricted.
func (c *choice) narrow(to set) bool {
	packets := c.and(c.packets, to)
	if packets == none || !c.intersects(packets, c.possible) {
		return false
	}
	c.packets = packets
	return true
}

// choose returns the values of one possible packet of the set, and prefers typical values. If there
// is no possible packet, all values are zero.
func (s *space) choose(packets set) [fieldCount]value {
	var chosen [fieldCount]value
	c := choice{s, packets, s.possible()}
	if !s.anyPossible(packets) {
		return chosen
	}
	for _, f := range choiceOrder {
		if f == iface {
			for _, route := range s.typicalRoutes() {
				if c.narrow(route) {
					break
				}
			}
		}
		found := false
		for _, v := range s.typicalValues(f, &chosen) {
			if found = c.narrow(s.is(f, v)); found {
				chosen[f] = v
				break
			}
		}
		if !found {
			chosen[f] = c.pickValue(f)
			c.narrow(s.is(f, chosen[f]))
		}
	}
	return chosen
}

// pickValue returns a value of the field in a packet of the choice: the least value or, for an
// address, a port or an id, the next value if the choice contains it, because the address of a
// network and the number 0 are not typical.
func (c choice) pickValue(f field) value {
	first := c.least(f)
	second := first.next()
	isRange := f == destination || f == source || f == destinationPort || f == sourcePort ||
		f == group || f == user
	if isRange && first != (value{}).withLowBits(len(c.bits[f])) && c.narrow(c.is(f, second)) {
		return second
	}
	return first
}

// least returns the least value of a field in the choice.
func (c choice) least(f field) value {
	var v value
	width := len(c.bits[f])
	for i, bit := range c.bits[f] {
		if !c.narrow(c.node(bit, all, none)) {
			v = v.withBit(width - 1 - i)
			c.narrow(c.node(bit, none, all))
		}
	}
	return v
}

// witness returns one packet of the set.
func (s *space) witness(packets set) rules.Packet {
	chosen := s.choose(packets)
	example, p := s.exampleBox(chosen, packets), s.packet(chosen)
	s.clearIrrelevantFields(&p, example, packets, nil)
	return p
}

// packet returns the packet with the values of the fields.
func (s *space) packet(v [fieldCount]value) rules.Packet {
	width := len(s.bits[destination])
	p := rules.Packet{
		Hook:     s.hook,
		Protocol: rules.Protocol(v[protocol].low),
		Source:   netip.AddrPortFrom(v[source].address(width), uint16(v[sourcePort].low)),
		Destination: netip.AddrPortFrom(v[destination].address(width),
			uint16(v[destinationPort].low)),
		Mark: uint32(v[mark].low), ConntrackMark: uint32(v[connectionMark].low),
		State: rules.State(v[state].low), Flags: rules.TCPFlags(v[flags].low),
		NoListener: v[noListener].low == 1, Reply: v[reply].low == 1,
		Status:   rules.Status(v[status].low),
		ICMPType: uint8(v[icmp].low >> 8), ICMPCode: uint8(v[icmp].low),
		DestinationType: rules.AddrType(v[destinationType].low),
		SourceType:      rules.AddrType(v[sourceType].low),
	}
	if v[state] == number(laterNew) {
		p.State = rules.New
	}
	if s.hook == rules.Prerouting {
		p.InAddress = v[inAddress].address(width)
	}
	name := s.interfaces.classes[v[iface].low].example
	if s.hook == rules.Output {
		p.OutInterface = name
	} else {
		p.InInterface = name
	}
	p.KernelSocket = v[user].low == kernelSocketUser
	if v[user].low >= userSocketBit {
		p.Owner = &rules.Owner{UID: uint32(v[user].low), GID: uint32(v[group].low)}
	}
	return p
}
