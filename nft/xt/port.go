package xt

import (
	"errors"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

const (
	tcpSize       = 12 // struct xt_tcp
	udpSize       = 10 // struct xt_udp
	multiportSize = 48 // struct xt_multiport_v1

	// multiportSlots is how many ports a multiport match has; a range takes two (XT_MULTI_PORTS).
	multiportSlots = 15
)

// Bits of struct xt_tcp and xt_udp that negate; those of the ports are a side's.
const (
	negateSource = 1 << 0
	negateFlags  = 1 << 2
)

// allPorts is what the structures have where no port is asked for.
var allPorts = rules.PortRange{First: 0, Last: 1<<16 - 1}

// knownFlags are those of TCP that the model has.
const knownFlags = rules.FIN | rules.SYN | rules.RST | rules.PSH | rules.ACK | rules.URG

// decodeTCP reads struct xt_tcp; isTCP reports that the rule compares the protocol, without which
// the kernel takes any packet for TCP.
func decodeTCP(info []byte, isTCP bool) ([]rules.Match, bool) {
	if !isTCP || len(info) < tcpSize {
		return nil, false
	}
	option, mask, value, negated := info[8], rules.TCPFlags(info[9]), rules.TCPFlags(info[10]), info[11]
	found, ok := decodePorts(info, negated)
	flags := rules.MatchTCPFlags{Not: negated&negateFlags != 0, Mask: mask, Value: value}
	if flags != (rules.MatchTCPFlags{}) {
		found = append(found, flags)
	}
	const known = negateSource | negateSource<<1 | negateFlags
	return found, ok && option == 0 && (mask|value)&^knownFlags == 0 && negated&^known == 0
}

// decodeUDP reads struct xt_udp.
func decodeUDP(info []byte, isUDP bool) ([]rules.Match, bool) {
	if !isUDP || len(info) < udpSize {
		return nil, false
	}
	negated := info[8]
	found, ok := decodePorts(info, negated)
	const known = negateSource | negateSource<<1
	return found, ok && negated&^known == 0
}

// Where struct xt_sctp_info has what is asked for and what of it is negated, and its size; and the
// bits.
const (
	sctpFlagsAt  = 284
	sctpNegateAt = 288
	sctpSize     = 292

	sctpSource      = 1 << 0
	sctpDestination = 1 << 1
)

// decodeSCTP reads struct xt_sctp_info: the ports of the destination and the source, and chunks.
func decodeSCTP(info []byte, isSCTP bool) ([]rules.Match, bool) {
	if !isSCTP || len(info) < sctpSize {
		return nil, false
	}
	asked, negated := native.Uint32(info[sctpFlagsAt:]), native.Uint32(info[sctpNegateAt:])
	if (asked|negated)&^(sctpSource|sctpDestination) != 0 {
		return nil, false
	}
	var found []rules.Match
	for _, side := range []struct {
		side rules.Side
		at   int
		flag uint32
	}{{rules.Source, 4, sctpSource}, {rules.Destination, 0, sctpDestination}} {
		ports := rules.PortRange{First: native.Uint16(info[side.at:]), Last: native.Uint16(info[side.at+2:])}
		not := negated&side.flag != 0
		switch {
		case asked&side.flag == 0:
		case ports.First > ports.Last:
			return nil, false
		case ports != allPorts || not:
			found = append(found, rules.MatchPort{Side: side.side, Not: not, Ports: []rules.PortRange{ports}})
		}
	}
	return found, true
}

// decodePorts reads the ranges of both sides.
func decodePorts(info []byte, negated byte) ([]rules.Match, bool) {
	var found []rules.Match
	for side := range 2 {
		ports := rules.PortRange{First: native.Uint16(info[4*side:]), Last: native.Uint16(info[4*side+2:])}
		not := negated&(negateSource<<side) != 0
		if ports.First > ports.Last {
			return nil, false
		}
		if ports != allPorts || not {
			found = append(found, rules.MatchPort{Side: rules.Side(side), Not: not, Ports: []rules.PortRange{ports}})
		}
	}
	return found, true
}

// multiportEither is the side that asks for a port of the list at either end (XT_MULTIPORT_EITHER).
// The other sides are those of the model.
const multiportEither = 2

// decodeMultiport reads struct xt_multiport_v1. A flag says for each port whether the next one is
// the end of its range.
func decodeMultiport(info []byte, hasPorts bool) ([]rules.Match, bool) {
	if !hasPorts || len(info) < multiportSize {
		return nil, false
	}
	side, count, negated := info[0], int(info[1]), info[47]
	if side > multiportEither || count == 0 || count > multiportSlots || negated > 1 {
		return nil, false
	}
	var ports []rules.PortRange
	for i := 0; i < count; i++ {
		r := rules.Single(native.Uint16(info[2+2*i:]))
		if info[32+i] != 0 {
			if i++; i == count {
				return nil, false
			}
			r.Last = native.Uint16(info[2+2*i:])
		}
		if r.First > r.Last {
			return nil, false
		}
		ports = append(ports, r)
	}
	ports = rules.Normalise(ports)
	if side == multiportEither {
		return []rules.Match{rules.MatchTuple{Not: negated != 0, Alternatives: [][]rules.Match{
			{rules.MatchPort{Side: rules.Source, Ports: ports}},
			{rules.MatchPort{Side: rules.Destination, Ports: ports}},
		}}}, true
	}
	return []rules.Match{rules.MatchPort{Side: rules.Side(side), Not: negated != 0, Ports: ports}}, true
}

// portEncoder writes matches: one structure for all that one can hold of TCP's or UDP's header, at
// the place of the first of it.
type portEncoder struct {
	protocol rules.Protocol
	matches  []rules.Match
	done     []Extension
	header   []byte // of tcp or udp, nil while there is none
	headerAt int    // its place in done
}

func (e *portEncoder) encode(m rules.Match) error {
	switch m := m.(type) {
	case rules.MatchPort:
		return e.port(m)
	case rules.MatchTCPFlags:
		return e.flags(m)
	}
	x, err := encodeMatch(m)
	e.done = append(e.done, x)
	return err
}

// structure returns the structure of the header, with what fits any packet.
func (e *portEncoder) structure() []byte {
	if e.header == nil {
		e.header, e.headerAt = make([]byte, tcpSize), len(e.done)
		native.PutUint16(e.header[2:], allPorts.Last)
		native.PutUint16(e.header[6:], allPorts.Last)
		e.done = append(e.done, Extension{})
	}
	return e.header
}

// negation is where the bits are that negate.
func (e *portEncoder) negation() *byte {
	if e.protocol == rules.TCP {
		return &e.header[11]
	}
	return &e.header[8]
}

func (e *portEncoder) port(m rules.MatchPort) error {
	if e.protocol != rules.TCP && e.protocol != rules.UDP {
		return errors.New("ports are of TCP or UDP, and only one of them")
	}
	ofSide := func(m2 rules.Match) bool {
		p, ok := m2.(rules.MatchPort)
		return ok && p.Side == m.Side
	}
	first := slices.IndexFunc(e.matches, ofSide)
	alone := !slices.ContainsFunc(e.matches[first+1:], ofSide)
	if !alone || len(m.Ports) != 1 || m.Ports[0] == allPorts && !m.Not {
		x, err := encodeMultiport(m)
		e.done = append(e.done, x)
		return err
	}
	at := e.structure()[4*m.Side:]
	native.PutUint16(at, m.Ports[0].First)
	native.PutUint16(at[2:], m.Ports[0].Last)
	*e.negation() |= flag(m.Not, negateSource<<m.Side)
	return nil
}

func (e *portEncoder) flags(m rules.MatchTCPFlags) error {
	if e.protocol != rules.TCP || (m.Mask|m.Value)&^knownFlags != 0 || m == (rules.MatchTCPFlags{}) {
		return errors.New("flags are of TCP, and some must be compared")
	}
	b := e.structure()
	if b[9] != 0 || b[10] != 0 || b[11]&negateFlags != 0 {
		return errors.New("flags are compared twice")
	}
	b[9], b[10] = byte(m.Mask), byte(m.Value)
	*e.negation() |= flag(m.Not, negateFlags)
	return nil
}

// finish puts the structure of the header in its place.
func (e *portEncoder) finish() []Extension {
	switch {
	case e.header == nil:
	case e.protocol == rules.TCP:
		e.done[e.headerAt] = Extension{Name: "tcp", Data: e.header}
	default:
		e.done[e.headerAt] = Extension{Name: "udp", Data: e.header[:udpSize]}
	}
	return e.done
}

// Slots returns how many of the places for ports of one match a list takes. There are [MaxSlots].
func Slots(ports []rules.PortRange) int {
	n := len(ports)
	for _, r := range ports {
		if !r.IsSingle() {
			n++
		}
	}
	return n
}

// MaxSlots is how many places for ports a match has.
const MaxSlots = multiportSlots

func encodeMultiport(m rules.MatchPort) (Extension, error) {
	if len(m.Ports) == 0 || Slots(m.Ports) > MaxSlots {
		return Extension{}, errors.New("a multiport match has 1 to 15 ports, of which a range takes two")
	}
	data := make([]byte, multiportSize)
	n := 0
	put := func(port uint16) {
		native.PutUint16(data[2+2*n:], port)
		n++
	}
	for _, r := range m.Ports {
		put(r.First)
		if !r.IsSingle() {
			data[32+n-1] = 1
			put(r.Last)
		}
	}
	data[0], data[1], data[47] = byte(m.Side), byte(n), flag(m.Not, 1)
	return Extension{Name: "multiport", Revision: 1, Data: data}, nil
}
