package save

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// matchUDP parses the match udp.
func (r *moduleReader) matchUDP() []rules.Match { return r.portMatches(rules.UDP) }

// matchSCTP parses the match sctp. The model represents only the ports.
func (r *moduleReader) matchSCTP() []rules.Match {
	r.isUnknown = r.option("--chunk-types") != nil
	return r.portMatches(rules.SCTP)
}

// matchDCCP parses the match dccp. The model represents only the ports.
func (r *moduleReader) matchDCCP() []rules.Match {
	r.isUnknown = r.option("--dccp-types") != nil || r.option("--dccp-option") != nil
	return r.portMatches(rules.DCCP)
}

// portMatches parses the options for ports. It reports an error unless the rule matches the
// protocol.
func (r *moduleReader) portMatches(p rules.Protocol) []rules.Match {
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

// matchMultiport parses the match multiport: a list of ports for one side or for either side.
func (r *moduleReader) matchMultiport() []rules.Match {
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
	if slots > xt.MaxSlots {
		r.fail(o.values[0], "at most %d ports, of which a range counts as two", xt.MaxSlots)
	}
	m.Ports = rules.Normalize(m.Ports)
	if o.name == "--ports" {
		return []rules.Match{xt.EitherPort(m.Ports, o.not)}
	}
	return []rules.Match{m}
}

// addPorts writes a single port or range with the match of the protocol, and several of them with
// the match multiport. For UDP-Lite, iptables has only multiport.
func (p *rulePrinter) addPorts(m rules.MatchPort) error {
	texts, err := p.portTexts(m, m.Ports)
	switch {
	case err != nil:
		return err
	case len(texts) == 1 && p.protocol != rules.UDPLite:
		p.add("-m", p.protocol.String())
		p.addOption(m.Not, "--"+sideLetter(m.Side)+"port", texts[0])
	default:
		p.add("-m", "multiport")
		p.addOption(m.Not, "--"+sideLetter(m.Side)+"ports", strings.Join(texts, ","))
	}
	return nil
}

// addEitherPort writes a match in the form that [xt.EitherPort] returns. iptables supports no other
// tuple.
func (p *rulePrinter) addEitherPort(m rules.MatchTuple) error {
	var source rules.MatchPort
	if len(m.Alternatives) > 0 && len(m.Alternatives[0]) > 0 {
		source, _ = m.Alternatives[0][0].(rules.MatchPort)
	}
	if !reflect.DeepEqual(m, xt.EitherPort(source.Ports, m.Not)) {
		return fmt.Errorf("%s: iptables has no such match", m)
	}
	texts, err := p.portTexts(m, source.Ports)
	if err != nil {
		return err
	}
	p.add("-m", "multiport")
	p.addOption(m.Not, "--ports", strings.Join(texts, ","))
	return nil
}

// portTexts returns the texts of the ports or ranges of a match. It returns an error if they do not
// fit into a match multiport.
func (p *rulePrinter) portTexts(m rules.Match, ports []rules.PortRange) ([]string, error) {
	if !p.protocol.HasPorts() {
		return nil, fmt.Errorf(
			"%s: the rule must match a protocol with ports, such as tcp or udp", m)
	}
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = portText(p.First)
		if !p.IsSingle() {
			texts[i] += ":" + portText(p.Last)
		}
	}
	if xt.Slots(ports) > xt.MaxSlots || len(texts) == 0 {
		return nil, fmt.Errorf(
			"%s: iptables compares 1 to %d ports, of which a range counts as two", m, xt.MaxSlots)
	}
	return texts, nil
}
