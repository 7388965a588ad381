package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// This file describes matches of parts of the header that the model does not represent. The text of
// such a match identifies the match. It is the same whether the match was read from the kernel or
// from the output of iptables-save.

// LengthText returns the text of the match length, which compares the length of the packet.
func LengthText(not bool, lowest, highest uint16) string {
	if lowest == highest {
		return fmt.Sprintf("-m length %s--length %d", negation(not), lowest)
	}
	return fmt.Sprintf("-m length %s--length %d:%d", negation(not), lowest, highest)
}

// HopComparison is the mode of the matches ttl and hl.
type HopComparison uint8

// The comparisons: IPT_TTL_EQ and others.
const (
	HopsEqual HopComparison = iota
	HopsDiffer
	HopsBelow
	HopsAbove
)

// HopMatchText returns the text of the match ttl, or for IPv6 of the match hl. ok is false if there
// is no such comparison.
func HopMatchText(
	family rules.Family, comparison HopComparison, value uint8,
) (text string, ok bool) {
	if comparison > HopsAbove {
		return "", false
	}
	name := "ttl"
	if family == rules.IPv6 {
		name = "hl"
	}
	return fmt.Sprintf("-m %s %s--%s-%s %d", name, negation(comparison == HopsDiffer), name,
		[...]string{"eq", "eq", "lt", "gt"}[comparison], value), true
}

// DSCPMatchText returns the text of the match dscp.
func DSCPMatchText(not bool, value uint8) string {
	return fmt.Sprintf("-m dscp %s--dscp 0x%02x", negation(not), value)
}

// TOSMatchText returns the text of the match tos.
func TOSMatchText(not bool, value, mask uint8) string {
	return fmt.Sprintf("-m tos %s--tos 0x%02x/0x%02x", negation(not), value, mask)
}

// negation returns the text before a negated option.
func negation(not bool) string {
	if not {
		return "! "
	}
	return ""
}

// headerMatchText returns the text of a match of the header: struct xt_length_info, ipt_ttl_info,
// ip6t_hl_info, xt_dscp_info or xt_tos_match_info. It returns false for other matches and for
// invalid structures.
func headerMatchText(_ rules.Family, x Extension) (string, bool) {
	data := x.Data
	flag := func(i int) bool { return data[i] != 0 }
	switch (key{x.Name, x.Revision}) {
	case key{"length", 0}:
		if len(data) >= 5 {
			return LengthText(flag(4), native.Uint16(data), native.Uint16(data[2:])), true
		}
	case key{"ttl", 0}, key{"hl", 0}:
		family := rules.IPv4
		if x.Name == "hl" {
			family = rules.IPv6
		}
		if len(data) >= 2 {
			return HopMatchText(family, HopComparison(data[0]), data[1])
		}
	case key{"dscp", 0}:
		if len(data) >= 2 {
			return DSCPMatchText(flag(1), data[0]), true
		}
	case key{"tos", 1}: // the mask precedes the value
		if len(data) >= 3 {
			return TOSMatchText(flag(2), data[1], data[0]), true
		}
	}
	return "", false
}
