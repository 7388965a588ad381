package save

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// addPorts writes a single port or range with the match of the protocol, and several of them with
// the match multiport.
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

// addEitherPort writes a match of the same ports as source or destination. It is the only tuple
// that iptables supports.
func (p *rulePrinter) addEitherPort(m rules.MatchTuple) error {
	var source rules.MatchPort
	if len(m.Alternatives) > 0 && len(m.Alternatives[0]) > 0 {
		source, _ = m.Alternatives[0][0].(rules.MatchPort)
	}
	if !reflect.DeepEqual(rules.Match(m), eitherPort(source.Ports, m.Not)) {
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
	slots := 0
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = portText(p.First)
		if slots++; !p.IsSingle() {
			texts[i] += ":" + portText(p.Last)
			slots++
		}
	}
	if slots > maxMultiport || len(texts) == 0 {
		return nil, fmt.Errorf(
			"%s: iptables compares 1 to %d ports, of which a range counts as two", m, maxMultiport)
	}
	return texts, nil
}
