package save

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-mesh/sluice/rules"
)

// An icmpName is a name of an ICMP type, or of one of its codes.
type icmpName struct {
	name                string
	icmpType            uint16
	firstCode, lastCode uint16
}

// values returns the range of 256 times the type plus the code, as in the kernel's matches.
func (n icmpName) values() rules.Range[uint16] {
	return rules.Range[uint16]{
		First: n.icmpType<<8 | n.firstCode, Last: n.icmpType<<8 | n.lastCode,
	}
}

// icmpNames contains the names for IPv4, from extensions/libxt_icmp.h of iptables.
var icmpNames = []icmpName{
	{"any", anyICMP, 0, 0xff},
	{"echo-reply", 0, 0, 0xff},
	{"pong", 0, 0, 0xff},
	{"destination-unreachable", 3, 0, 0xff},
	{"network-unreachable", 3, 0, 0},
	{"host-unreachable", 3, 1, 1},
	{"protocol-unreachable", 3, 2, 2},
	{"port-unreachable", 3, 3, 3},
	{"fragmentation-needed", 3, 4, 4},
	{"source-route-failed", 3, 5, 5},
	{"network-unknown", 3, 6, 6},
	{"host-unknown", 3, 7, 7},
	{"network-prohibited", 3, 9, 9},
	{"host-prohibited", 3, 10, 10},
	{"TOS-network-unreachable", 3, 11, 11},
	{"TOS-host-unreachable", 3, 12, 12},
	{"communication-prohibited", 3, 13, 13},
	{"host-precedence-violation", 3, 14, 14},
	{"precedence-cutoff", 3, 15, 15},
	{"source-quench", 4, 0, 0xff},
	{"redirect", 5, 0, 0xff},
	{"network-redirect", 5, 0, 0},
	{"host-redirect", 5, 1, 1},
	{"TOS-network-redirect", 5, 2, 2},
	{"TOS-host-redirect", 5, 3, 3},
	{"echo-request", 8, 0, 0xff},
	{"ping", 8, 0, 0xff},
	{"router-advertisement", 9, 0, 0xff},
	{"router-solicitation", 10, 0, 0xff},
	{"time-exceeded", 11, 0, 0xff},
	{"ttl-exceeded", 11, 0, 0xff},
	{"ttl-zero-during-transit", 11, 0, 0},
	{"ttl-zero-during-reassembly", 11, 1, 1},
	{"parameter-problem", 12, 0, 0xff},
	{"ip-header-bad", 12, 0, 0},
	{"required-option-missing", 12, 1, 1},
	{"timestamp-request", 13, 0, 0xff},
	{"timestamp-reply", 14, 0, 0xff},
	{"address-mask-request", 17, 0, 0xff},
	{"address-mask-reply", 18, 0, 0xff},
}

// icmpv6Names contains the names for IPv6.
var icmpv6Names = []icmpName{
	{"destination-unreachable", 1, 0, 0xff},
	{"no-route", 1, 0, 0},
	{"communication-prohibited", 1, 1, 1},
	{"beyond-scope", 1, 2, 2},
	{"address-unreachable", 1, 3, 3},
	{"port-unreachable", 1, 4, 4},
	{"failed-policy", 1, 5, 5},
	{"reject-route", 1, 6, 6},
	{"packet-too-big", 2, 0, 0xff},
	{"time-exceeded", 3, 0, 0xff},
	{"ttl-exceeded", 3, 0, 0xff},
	{"ttl-zero-during-transit", 3, 0, 0},
	{"ttl-zero-during-reassembly", 3, 1, 1},
	{"parameter-problem", 4, 0, 0xff},
	{"bad-header", 4, 0, 0},
	{"unknown-header-type", 4, 1, 1},
	{"unknown-option", 4, 2, 2},
	{"echo-request", 128, 0, 0xff},
	{"ping", 128, 0, 0xff},
	{"echo-reply", 129, 0, 0xff},
	{"pong", 129, 0, 0xff},
	{"router-solicitation", 133, 0, 0xff},
	{"router-advertisement", 134, 0, 0xff},
	{"neighbour-solicitation", 135, 0, 0xff},
	{"neighbor-solicitation", 135, 0, 0xff},
	{"neighbour-advertisement", 136, 0, 0xff},
	{"neighbor-advertisement", 136, 0, 0xff},
	{"redirect", 137, 0, 0xff},
}

// matchICMP parses the match icmp or icmp6. It returns no match if all types and codes match.
func (r *moduleReader) matchICMP() []rules.Match {
	option, names, m := "--icmp-type", icmpNames, rules.MatchICMP{}
	protocol, family, wrongFamily := rules.ICMP, rules.IPv4, "a match of ip6tables, such as icmp6"
	if r.kernelName == "icmp6" {
		option, names, m.V6 = "--icmpv6-type", icmpv6Names, true
		protocol, family, wrongFamily = rules.ICMPv6, rules.IPv6, "a match of iptables, such as icmp"
	}
	r.requireProtocol(protocol)
	if r.family != family {
		r.fail(r.flag, "%s", wrongFamily)
	}
	o := r.requiredOption(option)
	if o == nil {
		return nil
	}
	m.Not = o.not
	values, ok := icmpValues(o.values[0].text, names)
	if !ok {
		r.fail(o.values[0], "a type of ICMP: its name, its number, TYPE/CODE or TYPE/FIRST:LAST")
		return nil
	}
	if !m.V6 && values.First>>8 == anyICMP {
		values = allCodes
	}
	if values == allCodes && !m.Not {
		return nil
	}
	m.Values = []rules.Range[uint16]{values}
	return []rules.Match{m}
}

// anyICMP is the number with which the kernel matches any ICMP type of IPv4 (icmp_type_code_match
// in net/netfilter/xt_tcpudp.c; in older kernels in net/ipv4/netfilter/ip_tables.c).
const anyICMP = 255

// allCodes contains all codes of all types.
var allCodes = rules.Range[uint16]{Last: 1<<16 - 1}

// icmpValues parses a name, or the number of a type with an optional code or range of codes.
// iptables-save prints only the first code of a range. A name may be abbreviated if the
// abbreviation is unambiguous.
func icmpValues(text string, names []icmpName) (rules.Range[uint16], bool) {
	var found []icmpName
	for _, n := range names {
		switch {
		case strings.EqualFold(n.name, text):
			return n.values(), true
		case text != "" && len(text) < len(n.name) && strings.EqualFold(n.name[:len(text)], text):
			found = append(found, n)
		}
	}
	if len(found) == 1 {
		return found[0].values(), true
	}
	first, second, hasCode := strings.Cut(text, "/")
	t, ok := number(first, 8)
	if !hasCode {
		return rules.Range[uint16]{First: uint16(t) << 8, Last: uint16(t)<<8 | 0xff}, ok
	}
	firstText, lastText, isRange := strings.Cut(second, ":")
	if !isRange {
		lastText = firstText
	}
	code, okCode := number(firstText, 8)
	last, okLast := number(lastText, 8)
	codes := rules.Range[uint16]{First: uint16(t)<<8 | uint16(code), Last: uint16(t)<<8 | uint16(last)}
	return codes, ok && okCode && okLast && code <= last
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
	case !v6 && r == allCodes:
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
