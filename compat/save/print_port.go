package save

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// addPorts writes ports: one port or range with the protocol's own match, several with multiport.
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

// addEitherPort writes ports of either side, the only tuple that iptables supports.
func (p *rulePrinter) addEitherPort(m rules.MatchTuple) error {
	if len(m.Alternatives) == 2 && len(m.Alternatives[0]) == 1 && len(m.Alternatives[1]) == 1 {
		source, okSource := m.Alternatives[0][0].(rules.MatchPort)
		destination, okDestination := m.Alternatives[1][0].(rules.MatchPort)
		if okSource && okDestination && !source.Not && !destination.Not &&
			source.Side == rules.Source &&
			destination.Side == rules.Destination && slices.Equal(source.Ports, destination.Ports) {
			texts, err := p.portTexts(m, source.Ports)
			if err != nil {
				return err
			}
			p.add("-m", "multiport")
			p.addOption(m.Not, "--ports", strings.Join(texts, ","))
			return nil
		}
	}
	return fmt.Errorf("%s: iptables has no such match", m)
}

// portTexts returns the texts of the ports or ranges of a match, which must fit into multiport.
func (p *rulePrinter) portTexts(m rules.Match, ports []rules.PortRange) ([]string, error) {
	if !p.protocol.HasPorts() {
		return nil, fmt.Errorf(
			"%s: the rule must match a protocol with ports, such as tcp or udp", m)
	}
	room := maxMultiport
	texts := make([]string, len(ports))
	for i, p := range ports {
		texts[i] = portText(p.First)
		if room--; !p.IsSingle() {
			texts[i] += ":" + portText(p.Last)
			room--
		}
	}
	if room < 0 || len(texts) == 0 {
		return nil, fmt.Errorf(
			"%s: iptables compares 1 to %d ports, of which a range counts as two", m, maxMultiport)
	}
	return texts, nil
}
