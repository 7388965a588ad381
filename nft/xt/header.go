package xt

import (
	"fmt"

	"github.com/sluice-mesh/sluice/rules"
)

// This file describes targets that change a header field or the priority of the packet, which the
// model does not represent. The packet continues with the next rule. The text is the same for a
// target from the kernel and from iptables-save.

// headerTarget returns a target that changes a header field. The change depends only on the header
// and, for a maximum segment size, on the route, which depends on the interface and the mark.
func headerTarget(text, field string) rules.Action {
	return rules.Unknown{
		Text: text, Effect: rules.WritesHeader, State: field,
		Ignores: rules.AllInputs &^ (rules.HeaderInput | rules.InterfaceInput | rules.MarkInput),
	}
}

// ClampMSS is the size that makes TCPMSS derive the maximum segment size from the MTU of the route
// (XT_TCPMSS_CLAMP_PMTU).
const ClampMSS = 0xffff

// TCPMSS returns the target TCPMSS, which sets the maximum segment size option of a SYN.
func TCPMSS(size uint16) rules.Action {
	text := fmt.Sprint("TCPMSS --set-mss ", size)
	if size == ClampMSS {
		text = "TCPMSS --clamp-mss-to-pmtu"
	}
	return headerTarget(text, "tcp option maxseg")
}

// FillChecksum returns the target CHECKSUM, which computes a missing checksum.
func FillChecksum() rules.Action { return headerTarget("CHECKSUM --checksum-fill", "checksum") }

// HopMode is the mode of the targets TTL and HL.
type HopMode uint8

// The modes: IPT_TTL_SET and others.
const (
	SetHops HopMode = iota
	IncrementHops
	DecrementHops
)

// HopLimit returns the target TTL, or for IPv6 the target HL. It returns nil for an invalid mode.
func HopLimit(family rules.Family, mode HopMode, value uint8) rules.Action {
	if mode > DecrementHops {
		return nil
	}
	name, option, field := "TTL", "ttl", "ttl"
	if family == rules.IPv6 {
		name, option, field = "HL", "hl", rules.RoutedHeader
	}
	suffix := [...]string{"set", "inc", "dec"}[mode]
	return headerTarget(fmt.Sprintf("%s --%s-%s %d", name, option, suffix, value), field)
}

// DSCP returns the target DSCP, which sets the differentiated services code point.
func DSCP(value uint8) rules.Action {
	return headerTarget(fmt.Sprintf("DSCP --set-dscp 0x%02x", value), rules.RoutedHeader)
}

// TOS returns the target TOS, which clears the bits of the mask and then applies xor with the
// value.
func TOS(value, mask uint8) rules.Action {
	return headerTarget(fmt.Sprintf("TOS --set-tos 0x%02x/0x%02x", value, mask), rules.RoutedHeader)
}

// Classify returns the target CLASSIFY, which sets the priority of the packet.
func Classify(priority uint32) rules.Action {
	return rules.Unknown{
		Text:   fmt.Sprintf("CLASSIFY --set-class %04x:%04x", priority>>16, priority&0xffff),
		Effect: rules.Writes, State: rules.PriorityState,
	}
}

// decodeHeaderTarget decodes struct xt_tcpmss_info, xt_CHECKSUM_info, ipt_TTL_info, ip6t_HL_info,
// xt_DSCP_info, xt_tos_target_info or xt_classify_target_info. It returns nil for an invalid
// structure.
func decodeHeaderTarget(x Extension) rules.Action {
	const fillOperation = 1 // XT_CHECKSUM_OP_FILL
	data := x.Data
	switch {
	case x.Name == "CLASSIFY" && len(data) >= 4:
		return Classify(native.Uint32(data))
	case x.Name == "CHECKSUM" && len(data) >= 1 && data[0] == fillOperation:
		return FillChecksum()
	case x.Name == "DSCP" && len(data) >= 1:
		return DSCP(data[0])
	case len(data) < 2:
	case x.Name == "TCPMSS":
		return TCPMSS(native.Uint16(data))
	case x.Name == "TTL":
		return HopLimit(rules.IPv4, HopMode(data[0]), data[1])
	case x.Name == "HL":
		return HopLimit(rules.IPv6, HopMode(data[0]), data[1])
	case x.Name == "TOS":
		return TOS(data[0], data[1])
	}
	return nil
}
