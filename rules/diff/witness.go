package diff

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// ordinary returns values of a field that a person expects in an example, the best first. The fields that come before it in
// choiceOrder are chosen already.
func (s *space) ordinary(f field, chosen *[fieldCount]value) []value {
	switch f {
	case protocol:
		return []value{number(rules.TCP), number(rules.UDP), number(rules.ICMP)}
	case destinationPort:
		return []value{number[uint32](8080), number[uint32](80), number[uint32](443), {}}
	case sourcePort:
		return []value{number[uint32](40000), {}}
	case user:
		return []value{number[uint64](withSocket + 1000), number[uint64](withSocket + rules.DefaultProxyID), {}}
	case group:
		return []value{number[uint32](1000), number[uint32](rules.DefaultProxyID), {}}
	case flags:
		if chosen[state] != number(rules.New) {
			return []value{number(rules.ACK), {}}
		}
		return []value{number(rules.SYN), number(rules.ACK), {}}
	case device:
		return s.ordinaryDevices()
	case source, destination:
		return s.ordinaryAddresses(f, chosen)
	}
	return []value{{}}
}

func (s *space) ordinaryDevices() []value {
	var devices []value
	for i, c := range s.devices {
		n := number(uint32(i))
		if c.example == "eth0" {
			devices = append([]value{n}, devices...)
		} else if c.example != loopback {
			devices = append(devices, n)
		}
	}
	return devices
}

// ordinaryAddresses are those of a pod and of another machine, or on lo the pod's alone.
func (s *space) ordinaryAddresses(f field, chosen *[fieldCount]value) []value {
	pod, other, local := "10.244.1.5", "192.0.2.10", "127.0.0.1"
	if s.family == rules.IPv6 {
		pod, other, local = "fd00:10:244:1::5", "2001:db8::10", "::1"
	}
	texts := []string{pod}
	switch over := s.devices[chosen[device].low].example; {
	case over == loopback:
		texts = []string{pod, local}
	case (f == source) != (s.hook == rules.Output):
		texts = []string{other}
	}
	values := make([]value, len(texts))
	for i, text := range texts {
		values[i] = address(netip.MustParseAddr(text))
	}
	return values
}

// ordinaryWays returns the part of the set in which destination and interface go together best.
func (s *space) ordinaryWays(packets set) set {
	prefix := loopbackIPv4
	if s.family == rules.IPv6 {
		prefix = loopbackIPv6
	}
	local := s.matching(addresses(rules.Destination, prefix), view{})
	for _, ways := range []set{s.not(s.or(local, s.overLoopback)), s.minus(s.overLoopback, local), s.and(s.overLoopback, local)} {
		if part := s.and(packets, ways); part != none {
			return part
		}
	}
	return packets
}

// choiceOrder is that in which the fields of an example are chosen: what says most comes first.
var choiceOrder = []field{
	protocol, state, device, user, group, destinationPort, destination, source, sourcePort, flags, mark, connectionMark, listener,
}

// choose returns one packet of the set, with ordinary values where it has such.
func (s *space) choose(packets set) [fieldCount]value {
	var chosen [fieldCount]value
	for _, f := range choiceOrder {
		if f == device {
			packets = s.ordinaryWays(packets)
		}
		narrowed := none
		for _, v := range s.ordinary(f, &chosen) {
			if narrowed = s.and(packets, s.is(f, v)); narrowed != none {
				chosen[f] = v
				break
			}
		}
		if narrowed == none {
			chosen[f] = s.some(f, packets)
			narrowed = s.and(packets, s.is(f, chosen[f]))
		}
		packets = narrowed
	}
	return chosen
}

// some returns a value that the field has in some packet of the set: the least, or in a range of several the one behind it, for the
// first address of a network and the number 0 are not what an example should show.
func (s *space) some(f field, packets set) value {
	first := s.least(f, packets)
	second := first.next()
	isRange := f == destination || f == source || f == destinationPort || f == sourcePort || f == group || f == user
	if isRange && first != (value{}).filled(len(s.bits[f])) && s.and(packets, s.is(f, second)) != none {
		return second
	}
	return first
}

// least returns the least value of a field in the set.
func (s *space) least(f field, packets set) value {
	var v value
	width := len(s.bits[f])
	for i, bit := range s.bits[f] {
		if with := s.and(packets, s.node(bit, all, none)); with != none {
			packets = with
			continue
		}
		v = v.with(width - 1 - i)
		packets = s.and(packets, s.node(bit, none, all))
	}
	return v
}

// witness returns one packet of the set.
func (s *space) witness(packets set) rules.Packet { return s.packet(s.choose(packets)) }

// packet makes a packet of the values of its fields.
func (s *space) packet(v [fieldCount]value) rules.Packet {
	width := len(s.bits[destination])
	p := rules.Packet{
		Hook:        s.hook,
		Protocol:    rules.Protocol(v[protocol].low),
		Source:      netip.AddrPortFrom(v[source].address(width), uint16(v[sourcePort].low)),
		Destination: netip.AddrPortFrom(v[destination].address(width), uint16(v[destinationPort].low)),
		Mark:        uint32(v[mark].low), ConntrackMark: uint32(v[connectionMark].low),
		State: rules.State(v[state].low), Flags: rules.TCPFlags(v[flags].low),
		NoListener: v[listener].low == 1,
	}
	name := s.devices[v[device].low].example
	if s.hook == rules.Output {
		p.OutInterface = name
	} else {
		p.InInterface = name
	}
	if v[user].low >= withSocket {
		p.Owner = &rules.Owner{UID: uint32(v[user].low), GID: uint32(v[group].low)}
	}
	return p
}
