package save

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// headerOrder is the order in which iptables-save writes the matches of the header.
var headerOrder = []string{"-s", "-d", "-i", "-o", "-p"}

// addMatches writes the matches of a rule.
func (p *rulePrinter) addMatches(matches []rules.Match) error {
	header := map[string][]string{}
	var moduleMatches []rules.Match
	for _, m := range matches {
		option, words, err := p.headerWords(m)
		if err != nil {
			return err
		}
		_, taken := header[option]
		if option == "" || taken || words == nil {
			moduleMatches = append(moduleMatches, m)
		}
		if !taken {
			// If words is nil, a later match must not use the option, because the later match would
			// then precede this match in the rule.
			header[option] = words
		}
	}
	for _, option := range headerOrder {
		p.add(header[option]...)
	}
	for _, m := range moduleMatches {
		if err := p.addModuleMatch(m); err != nil {
			return err
		}
	}
	return nil
}

// headerWords returns the option of the header for matches of this kind, or an empty option if
// there is none. It also returns the words of the option, or nil if the header cannot express the
// match.
func (p *rulePrinter) headerWords(m rules.Match) (option string, words []string, err error) {
	var value string
	var not bool
	switch m := m.(type) {
	case rules.MatchInterface:
		option, not = map[bool]string{false: "-i", true: "-o"}[m.Out], m.Not
		value, err = p.interfaceText(m)
	case rules.MatchAddr:
		option, not = "-"+sideLetter(m.Side), m.Not
		value, err = p.prefixText(m)
	case rules.MatchProtocol:
		option, not = "-p", m.Not
		if len(m.Protocols) != 1 || m.Protocols[0] == 0 {
			return "", nil, fmt.Errorf("%s: iptables compares one protocol, from 1 to 255", m)
		}
		value = strconv.Itoa(int(m.Protocols[0]))
		name := m.Protocols[0].String()
		if p, known := protocolNamed(name); known && p == m.Protocols[0] {
			value = name
		}
		if !not {
			p.protocol = m.Protocols[0]
		}
	}
	if value == "" {
		return option, nil, err
	}
	if not {
		words = append(words, "!")
	}
	return option, append(words, option, value), err
}

// sideLetter returns the letter for the side in names of options.
func sideLetter(s rules.Side) string {
	if s == rules.Destination {
		return "d"
	}
	return "s"
}

// interfaceText returns the name of an interface. It returns an error for an output interface in
// INPUT, for example, because packets have no output interface there and iptables rejects the rule.
func (p *rulePrinter) interfaceText(m rules.MatchInterface) (string, error) {
	if base := p.chain.Base; base != nil {
		hooksWithout := map[bool][]rules.Hook{
			false: {rules.Output, rules.Postrouting}, true: {rules.Prerouting, rules.Input},
		}[m.Out]
		if slices.Contains(hooksWithout, base.Hook) {
			return "", fmt.Errorf("%s: at %s there is no such interface", m, base.Hook)
		}
	}
	if len(m.Names) != 1 {
		return "", fmt.Errorf("%s: iptables compares one interface", m)
	}
	text := m.Names[0].Name
	isInvalid := func(c rune) bool { return c <= ' ' || strings.ContainsRune("/\"\\!", c) }
	if text == "" || strings.HasSuffix(text, "+") || strings.ContainsFunc(text, isInvalid) {
		return "", fmt.Errorf("%s: iptables does not support this interface name", m)
	}
	if m.Names[0].Prefix {
		text += "+"
	}
	if len(text) > maxInterfaceName {
		return "", fmt.Errorf("%s: the name is longer than %d bytes", m, maxInterfaceName)
	}
	return text, nil
}

// prefixText returns the addresses of the match as a prefix. It returns an empty text if the
// addresses are not a prefix. It also returns an empty text for all addresses, because the header
// cannot express a negated match of all addresses.
func (p *rulePrinter) prefixText(m rules.MatchAddr) (string, error) {
	if len(m.Ranges) != 1 || m.Family() != p.table.Family {
		return "", fmt.Errorf("%s: iptables compares one range of addresses of the table's family",
			m)
	}
	prefix, ok := m.Ranges[0].Prefix()
	if !ok || prefix.Bits() == 0 {
		return "", nil
	}
	return prefix.String(), nil
}

// addModuleMatch writes a match that needs a match module.
func (p *rulePrinter) addModuleMatch(m rules.Match) error {
	switch m := m.(type) {
	case rules.MatchAddr:
		return p.addIPRange(m)
	case rules.MatchPort:
		return p.addPorts(m)
	case rules.MatchTCPFlags:
		return p.addTCPFlags(m)
	case rules.MatchOwner:
		return p.addOwner(m)
	case rules.MatchCgroup:
		return p.addCgroup(m)
	case rules.MatchMark:
		return p.addMark(m)
	case rules.MatchState, rules.MatchStatus, rules.MatchDirection:
		return p.addConntrack(m)
	case rules.MatchAddrType:
		return p.addAddrType(m)
	case rules.MatchReversePath:
		return p.addRPFilter(m)
	case rules.MatchSocket:
		return p.addSocket(m)
	case rules.MatchICMP:
		return p.addICMP(m)
	case rules.MatchTuple:
		return p.addEitherPort(m)
	case rules.MatchInterface, rules.MatchProtocol:
		return fmt.Errorf("%s: iptables compares this once in a rule", m)
	}
	return fmt.Errorf("%s: iptables has no such match", m)
}
