package xt

import "github.com/sluice-mesh/sluice/rules"

// icmpAnyType represents all types and codes in struct ipt_icmp. In struct ip6t_icmp, which has the
// same layout, it is an ordinary type (icmp_match and icmp6_match in net/netfilter/xt_tcpudp.c).
const icmpAnyType = 255

// decodeICMP decodes struct ipt_icmp or ip6t_icmp: a type, the first and the last code, and their
// negation. isICMP reports whether the rule matches only ICMP, or only ICMPv6 if v6 is true.
func decodeICMP(info []byte, v6, isICMP bool) ([]rules.Match, bool) {
	if !isICMP || len(info) < 4 {
		return nil, false
	}
	kind, first, last, negated := info[0], info[1], info[2], info[3]
	if negated > 1 {
		return nil, false
	}
	base := uint16(kind) << 8
	values := rules.Range[uint16]{First: base | uint16(first), Last: base | uint16(last)}
	switch {
	case kind == icmpAnyType && !v6:
		if negated == 0 {
			return nil, true
		}
		values = rules.Range[uint16]{First: 0, Last: 1<<16 - 1}
	case first > last:
		return nil, false
	}
	return []rules.Match{rules.MatchICMP{
		V6: v6, Not: negated != 0, Values: []rules.Range[uint16]{values},
	}}, true
}
