package save

import (
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

func (r *moduleReader) tcp() []rules.Match {
	matches := append(r.portsOf(rules.TCP), r.tcpFlags()...)
	r.isUnknown = r.isUnknown || r.option("--tcp-option") != nil
	return matches
}

func (r *moduleReader) udp() []rules.Match { return r.portsOf(rules.UDP) }

// portsOf parses the ports of a protocol. It reports an error if the rule does not match the
// protocol.
func (r *moduleReader) portsOf(p rules.Protocol) []rules.Match {
	r.requireProtocol(p)
	return append(r.portOption("--sport", rules.Source),
		r.portOption("--dport", rules.Destination)...)
}

// portOption parses the ports of one side. For a range of all ports it returns no match.
func (r *moduleReader) portOption(name string, side rules.Side) []rules.Match {
	o := r.option(name)
	if o == nil {
		return nil
	}
	p := r.ports(o.values[0], o.values[0].text)
	if p == (rules.PortRange{Last: 1<<16 - 1}) && !o.not {
		return nil
	}
	return []rules.Match{rules.MatchPort{Side: side, Not: o.not, Ports: []rules.PortRange{p}}}
}

// flagBits contains iptables' names of the TCP flags.
var flagBits = []namedBits{
	{"FIN", uint8(rules.FIN)},
	{"SYN", uint8(rules.SYN)},
	{"RST", uint8(rules.RST)},
	{"PSH", uint8(rules.PSH)},
	{"ACK", uint8(rules.ACK)},
	{"URG", uint8(rules.URG)},
	{"ALL", 1<<6 - 1},
	{"NONE", 0},
}

// tcpFlags parses --tcp-flags, or --syn, which is an abbreviation of --tcp-flags with certain
// values.
func (r *moduleReader) tcpFlags() []rules.Match {
	const want = "flags: a list of SYN, ACK, FIN, RST, URG and PSH, or ALL or NONE"
	m := rules.MatchTCPFlags{Mask: rules.SYN | rules.RST | rules.ACK | rules.FIN, Value: rules.SYN}
	o := r.option("--syn")
	if flags := r.option("--tcp-flags"); flags != nil {
		if o != nil {
			r.fail(o.flag, "either --syn or --tcp-flags")
		}
		o = flags
		m.Mask = rules.TCPFlags(r.bitSet(o.values[0], flagBits, want))
		m.Value = rules.TCPFlags(r.bitSet(o.values[1], flagBits, want))
	}
	if o == nil || m == (rules.MatchTCPFlags{}) && !o.not {
		return nil
	}
	m.Not = o.not
	return []rules.Match{m}
}

// maxMultiport is the maximum number of ports in a multiport match; a range counts as two
// (XT_MULTI_PORTS).
const maxMultiport = 15

// multiport parses a list of ports for one side or for either side.
func (r *moduleReader) multiport() []rules.Match {
	r.requireProtocol(rules.TCP, rules.UDP, rules.SCTP, rules.UDPLite, rules.DCCP)
	if len(r.options) != 1 {
		r.fail(r.flag, "one of --sports, --dports and --ports after it")
		return nil
	}
	o := r.options[0]
	m := rules.MatchPort{Not: o.not}
	if o.name == "--dports" {
		m.Side = rules.Destination
	}
	slots := 0
	for text := range strings.SplitSeq(o.values[0].text, ",") {
		if slots++; strings.Contains(text, ":") {
			slots++
		}
		m.Ports = append(m.Ports, r.ports(o.values[0], text))
	}
	if slots > maxMultiport {
		r.fail(o.values[0], "at most %d ports, of which a range counts as two", maxMultiport)
	}
	m.Ports = rules.Normalize(m.Ports)
	if o.name == "--ports" {
		return []rules.Match{eitherPort(m.Ports, o.not)}
	}
	return []rules.Match{m}
}

// eitherPort returns a match for packets with one of the ports as source or destination.
func eitherPort(ports []rules.PortRange, not bool) rules.Match {
	return rules.MatchTuple{Not: not, Alternatives: [][]rules.Match{
		{rules.MatchPort{Side: rules.Source, Ports: ports}},
		{rules.MatchPort{Side: rules.Destination, Ports: ports}},
	}}
}
