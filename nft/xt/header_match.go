package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// This file describes matches of header fields that the model does not represent. The text
// identifies the match, and is the same for a match from the kernel and from iptables-save.

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
