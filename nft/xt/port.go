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
)

// Struct xt_tcp and xt_udp begin with the ranges of source and destination ports. In struct xt_tcp
// the option is at offset 8, the mask and the value of the TCP flags are at 9 and 10, and the
// negation flags at 11. In struct xt_udp the negation flags are at 8.

// Negation flags of struct xt_tcp and xt_udp. The flag of the destination is negateSource << 1.
const (
	negateSource = 1 << 0
	negateFlags  = 1 << 2
)

// allPorts is the range in the structures if ports are not compared.
var allPorts = rules.PortRange{First: 0, Last: 1<<16 - 1}

// supportedFlags contains the TCP flags that the model supports.
const supportedFlags = rules.FIN | rules.SYN | rules.RST | rules.PSH | rules.ACK | rules.URG

// decodeTCP decodes struct xt_tcp. isTCP reports whether the rule matches only TCP. In other rules,
// the kernel would interpret every packet as TCP.
func decodeTCP(info []byte, isTCP bool) ([]rules.Match, bool) {
	if !isTCP || len(info) < tcpSize {
		return nil, false
	}
	option, mask, value, negations := info[8], rules.TCPFlags(info[9]), rules.TCPFlags(info[10]),
		info[11]
	found, ok := decodePorts(info, negations)
	flags := rules.MatchTCPFlags{Not: negations&negateFlags != 0, Mask: mask, Value: value}
	if flags != (rules.MatchTCPFlags{}) {
		found = append(found, flags)
	}
	const known = negateSource | negateSource<<1 | negateFlags
	return found, ok && option == 0 && (mask|value)&^supportedFlags == 0 && negations&^known == 0
}

// decodeUDP decodes struct xt_udp.
func decodeUDP(info []byte, isUDP bool) ([]rules.Match, bool) {
	if !isUDP || len(info) < udpSize {
		return nil, false
	}
	negations := info[8]
	found, ok := decodePorts(info, negations)
	const known = negateSource | negateSource<<1
	return found, ok && negations&^known == 0
}

// Offsets of the flags of compared and of negated fields in struct xt_sctp_info, its size, and the
// flags.
const (
	sctpFlagsOffset  = 284
	sctpInvertOffset = 288
	sctpSize         = 292

	sctpSource      = 1 << 0
	sctpDestination = 1 << 1
)

// decodeSCTP decodes struct xt_sctp_info if it compares only ports.
func decodeSCTP(info []byte, isSCTP bool) ([]rules.Match, bool) {
	if !isSCTP || len(info) < sctpSize {
		return nil, false
	}
	flags, negations := native.Uint32(info[sctpFlagsOffset:]), native.Uint32(info[sctpInvertOffset:])
	if (flags|negations)&^(sctpSource|sctpDestination) != 0 {
		return nil, false
	}
	var found []rules.Match
	for side, field := range [...]struct {
		offset int
		flag   uint32
	}{rules.Source: {4, sctpSource}, rules.Destination: {0, sctpDestination}} {
		if flags&field.flag == 0 {
			continue
		}
		var ok bool
		if found, ok = appendPorts(found, rules.Side(side), info[field.offset:],
			negations&field.flag != 0); !ok {
			return nil, false
		}
	}
	return found, true
}

// decodePorts decodes the ranges of source and destination ports of struct xt_tcp or xt_udp.
// negations contains the negation flags of the structure.
func decodePorts(info []byte, negations byte) ([]rules.Match, bool) {
	found, sourceValid := appendPorts(nil, rules.Source, info, negations&negateSource != 0)
	found, destinationValid := appendPorts(found, rules.Destination, info[4:],
		negations&(negateSource<<rules.Destination) != 0)
	return found, sourceValid && destinationValid
}

// appendPorts appends the match of a range of ports, unless every port matches. It returns false
// for a reversed range.
func appendPorts(found []rules.Match, side rules.Side, bounds []byte, not bool) ([]rules.Match, bool) {
	ports := rules.PortRange{First: native.Uint16(bounds), Last: native.Uint16(bounds[2:])}
	if ports != allPorts || not {
		found = append(found, rules.MatchPort{
			Side: side, Not: not, Ports: []rules.PortRange{ports},
		})
	}
	return found, ports.First <= ports.Last
}

// multiportEither means source or destination (XT_MULTIPORT_EITHER). The numbers of source and
// destination equal [rules.Source] and [rules.Destination].
const multiportEither = 2

// decodeMultiport decodes struct xt_multiport_v1: the side, the number of ports, 15 ports, a flag
// for each port at offset 32, and the negation at offset 47. A port whose flag is not 0 begins a
// range, and the next port ends the range.
func decodeMultiport(info []byte, hasPorts bool) ([]rules.Match, bool) {
	if !hasPorts || len(info) < multiportSize {
		return nil, false
	}
	side, count, negated := info[0], int(info[1]), info[47]
	if side > multiportEither || count == 0 || count > MaxSlots || negated > 1 {
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
	ports = rules.Normalize(ports)
	if side == multiportEither {
		return []rules.Match{EitherPort(ports, negated != 0)}, true
	}
	return []rules.Match{rules.MatchPort{
		Side: rules.Side(side), Not: negated != 0, Ports: ports,
	}}, true
}

// EitherPort returns the match for packets whose source or destination port is one of the ports.
func EitherPort(ports []rules.PortRange, not bool) rules.MatchTuple {
	return rules.MatchTuple{Not: not, Alternatives: [][]rules.Match{
		{rules.MatchPort{Side: rules.Source, Ports: ports}},
		{rules.MatchPort{Side: rules.Destination, Ports: ports}},
	}}
}

// A matchEncoder encodes the matches of a rule. It combines matches of the TCP or UDP header in one
// structure, at the position of the first of these matches.
type matchEncoder struct {
	protocol    rules.Protocol
	matches     []rules.Match
	extensions  []Extension
	header      []byte // struct xt_tcp or xt_udp, or nil
	headerIndex int    // of the header in extensions
}

// encode appends the extension of a match.
func (e *matchEncoder) encode(m rules.Match) error {
	switch m := m.(type) {
	case rules.MatchPort:
		return e.encodePort(m)
	case rules.MatchTCPFlags:
		return e.encodeFlags(m)
	}
	x, err := encodeMatch(m)
	e.extensions = append(e.extensions, x)
	return err
}

// headerStruct returns the structure of the header. The first call creates a structure that matches
// every packet.
func (e *matchEncoder) headerStruct() []byte {
	if e.header == nil {
		e.header, e.headerIndex = make([]byte, tcpSize), len(e.extensions)
		native.PutUint16(e.header[2:], allPorts.Last)
		native.PutUint16(e.header[6:], allPorts.Last)
		e.extensions = append(e.extensions, Extension{})
	}
	return e.header
}

// negationFlags returns the byte of the header with the negation flags.
func (e *matchEncoder) negationFlags() *byte {
	if e.protocol == rules.TCP {
		return &e.header[11]
	}
	return &e.header[8]
}

// encodePort encodes ports in the structure of the header, which has one range for each side. Three
// cases need a multiport match: several ranges, several matches of the same side, and the range of
// all ports, which the structure of the header cannot compare.
func (e *matchEncoder) encodePort(m rules.MatchPort) error {
	if e.protocol != rules.TCP && e.protocol != rules.UDP {
		return errors.New("a match of ports needs a match of the protocol, TCP or UDP")
	}
	hasSide := func(other rules.Match) bool {
		p, ok := other.(rules.MatchPort)
		return ok && p.Side == m.Side
	}
	first := slices.IndexFunc(e.matches, hasSide)
	unique := !slices.ContainsFunc(e.matches[first+1:], hasSide)
	if !unique || len(m.Ports) != 1 || m.Ports[0] == allPorts && !m.Not {
		x, err := encodeMultiport(m)
		e.extensions = append(e.extensions, x)
		return err
	}
	ports := e.headerStruct()[4*m.Side:]
	native.PutUint16(ports, m.Ports[0].First)
	native.PutUint16(ports[2:], m.Ports[0].Last)
	*e.negationFlags() |= flag(m.Not, negateSource<<m.Side)
	return nil
}

// encodeFlags encodes TCP flags in the structure of the header.
func (e *matchEncoder) encodeFlags(m rules.MatchTCPFlags) error {
	switch {
	case e.protocol != rules.TCP, m == rules.MatchTCPFlags{}:
		return errors.New(
			"a match of TCP flags needs a match of the protocol TCP and at least one flag")
	case (m.Mask|m.Value)&^supportedFlags != 0:
		return errors.New(
			"a match of TCP flags supports only the flags FIN, SYN, RST, PSH, ACK and URG")
	}
	b := e.headerStruct()
	if b[9] != 0 || b[10] != 0 || b[11]&negateFlags != 0 {
		return errors.New("a rule can match TCP flags only once")
	}
	b[9], b[10] = byte(m.Mask), byte(m.Value)
	*e.negationFlags() |= flag(m.Not, negateFlags)
	return nil
}

// finish adds the structure of the header at its position and returns the extensions.
func (e *matchEncoder) finish() []Extension {
	switch {
	case e.header == nil:
	case e.protocol == rules.TCP:
		e.extensions[e.headerIndex] = Extension{Name: "tcp", Data: e.header}
	default:
		e.extensions[e.headerIndex] = Extension{Name: "udp", Data: e.header[:udpSize]}
	}
	return e.extensions
}

// Slots returns the number of slots that ports take in a multiport match. A range takes two.
func Slots(ports []rules.PortRange) int {
	n := len(ports)
	for _, r := range ports {
		if !r.IsSingle() {
			n++
		}
	}
	return n
}

// MaxSlots is the number of slots of a multiport match (XT_MULTI_PORTS).
const MaxSlots = 15

// encodeMultiport encodes struct xt_multiport_v1; see decodeMultiport.
func encodeMultiport(m rules.MatchPort) (Extension, error) {
	if len(m.Ports) == 0 || Slots(m.Ports) > MaxSlots {
		return Extension{}, errors.New(
			"a multiport match must have 1 to 15 ports; a range counts as two")
	}
	data := make([]byte, multiportSize)
	n := 0
	appendPort := func(port uint16) {
		native.PutUint16(data[2+2*n:], port)
		n++
	}
	for _, r := range m.Ports {
		appendPort(r.First)
		if !r.IsSingle() {
			data[32+n-1] = 1
			appendPort(r.Last)
		}
	}
	data[0], data[1], data[47] = byte(m.Side), byte(n), flag(m.Not, 1)
	return Extension{Name: "multiport", Revision: 1, Data: data}, nil
}
