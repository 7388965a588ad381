package save

import (
	"fmt"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// matchTCP parses the match tcp. The model represents the ports and flags, but not the options of
// the TCP header.
func (r *moduleReader) matchTCP() []rules.Match {
	matches := append(r.portMatches(rules.TCP), r.tcpFlags()...)
	r.isUnknown = r.isUnknown || r.option("--tcp-option") != nil
	return matches
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

// addTCPFlags writes the option --tcp-flags of the match tcp.
func (p *rulePrinter) addTCPFlags(m rules.MatchTCPFlags) error {
	if p.protocol != rules.TCP {
		return fmt.Errorf("%s: the rule must match tcp", m)
	}
	if (m.Mask|m.Value)&(rules.ECN|rules.CWR) != 0 {
		return fmt.Errorf("%s: iptables has no names for ecn and cwr", m)
	}
	text := func(f rules.TCPFlags) string {
		if f == 0 {
			return "NONE"
		}
		return strings.ToUpper(strings.ReplaceAll(f.String(), " | ", ","))
	}
	p.add("-m", "tcp")
	p.addOption(m.Not, "--tcp-flags", text(m.Mask), text(m.Value))
	return nil
}
