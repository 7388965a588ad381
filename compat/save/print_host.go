package save

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// addConnection writes a match of the packet's connection.
func (p *rulePrinter) addConnection(m rules.Match) error {
	switch m := m.(type) {
	case rules.MatchState:
		if m.States == 0 {
			return fmt.Errorf("%s: iptables compares one state or more", m)
		}
		p.add("-m", "conntrack")
		p.addOption(m.Not, "--ctstate", strings.ToUpper(m.States.String()))
	case rules.MatchStatus:
		var names []string
		rest := m.Status
		for _, n := range statusBits {
			if bits := rules.Status(n.bits); bits != 0 && rest&bits != 0 {
				names, rest = append(names, n.name), rest&^bits
			}
		}
		if rest != 0 {
			return fmt.Errorf("%s: iptables matches snat and dnat as states, not as status bits", m)
		}
		if m.Status == 0 {
			names = []string{"NONE"}
		}
		p.add("-m", "conntrack")
		p.addOption(m.Not, "--ctstatus", strings.Join(names, ","))
	case rules.MatchDirection:
		direction := map[bool]string{false: "ORIGINAL", true: "REPLY"}[m.Reply]
		p.add("-m", "conntrack", "--ctdir", direction)
	}
	return nil
}

// addAddrType writes the match addrtype. For ip6tables only the types local and multicast have the
// meaning of the model.
func (p *rulePrinter) addAddrType(m rules.MatchAddrType) error {
	var names []string
	for t := range rules.ResolvedType + 1 {
		if m.Types.Has(t) {
			names = append(names, strings.ToUpper(t.String()))
		}
	}
	switch {
	case len(names) == 0:
		return fmt.Errorf("%s: iptables compares one type or more", m)
	case p.table.Family == rules.IPv6 && m.Types != rules.AddrTypes(rules.Local) &&
		m.Types != rules.AddrTypes(rules.Multicast):
		return fmt.Errorf(
			"%s: ip6tables has other types, and only local and multicast are the same", m)
	}
	p.add("-m", "addrtype")
	side := map[rules.Side]string{
		rules.Source: "--src-type", rules.Destination: "--dst-type",
	}[m.Side]
	p.addOption(m.Not, side, strings.Join(names, ","))
	return nil
}

// addReversePath writes the match rpfilter. Its Kind contains the options without their dashes.
func (p *rulePrinter) addReversePath(m rules.MatchReversePath) error {
	options := []string{"-m", "rpfilter"}
	kinds := strings.Fields(m.Kind)
	var known []string
	for _, flag := range pathFlags {
		if name := strings.TrimPrefix(flag, "--"); slices.Contains(kinds, name) {
			options, known = append(options, flag), append(known, name)
		}
	}
	if strings.Join(known, " ") != m.Kind {
		return fmt.Errorf("%s: iptables has no such match", m)
	}
	p.add(options...)
	if m.Not {
		p.add("--invert")
	}
	return nil
}

// addSocket writes the match socket, which cannot be negated.
func (p *rulePrinter) addSocket(m rules.MatchSocket) error {
	if m.Not || m.Kind != "" && m.Kind != "nowildcard" {
		return fmt.Errorf("%s: iptables has no such match", m)
	}
	p.add("-m", "socket", "--transparent")
	if m.Kind != "" {
		p.add("--nowildcard")
	}
	return nil
}

// addICMP writes the match icmp or icmp6 for one type, with one code or all codes.
func (p *rulePrinter) addICMP(m rules.MatchICMP) error {
	protocol, module, option, family := rules.ICMP, "icmp", "--icmp-type", rules.IPv4
	if m.V6 {
		protocol, module, option, family = rules.ICMPv6, "icmp6", "--icmpv6-type", rules.IPv6
	}
	if p.protocol != protocol || p.table.Family != family {
		return fmt.Errorf("%s: the rule must match %s in a table of %s", m, protocol, family)
	}
	var text string
	if len(m.Values) == 1 {
		text = icmpText(m.Values[0], m.V6)
	}
	if text == "" {
		return fmt.Errorf("%s: iptables compares one type, with all of its codes or with one", m)
	}
	p.add("-m", module)
	p.addOption(m.Not, option, text)
	return nil
}

// icmpText returns the text of a type with one code or all codes. It returns an empty text for
// other ranges.
func icmpText(r rules.Range[uint16], v6 bool) string {
	t := strconv.Itoa(int(r.First >> 8))
	switch {
	case !v6 && r == anyCode:
		return "any"
	case !v6 && r.First>>8 == anyICMP:
		return ""
	case r.IsSingle():
		return t + "/" + strconv.Itoa(int(r.First&0xff))
	case r.First&0xff == 0 && r.Last == r.First|0xff:
		return t
	}
	return ""
}
