package route

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// String formats the rule like the ip command.
func (r foundRule) String() string {
	words := []string{fmt.Sprintf("ip -%d rule priority %d", r.policy.Family, r.policy.Priority)}
	add := func(word string) {
		if word != "" {
			words = append(words, word)
		}
	}
	add(r.selectors)
	switch {
	case r.mask == ^uint32(0):
		add(fmt.Sprintf("fwmark 0x%x", r.policy.Mark))
	case r.mask != 0 || r.policy.Mark != 0:
		add(fmt.Sprintf("fwmark 0x%x/0x%x", r.policy.Mark, r.mask))
	}
	if r.policy.Table != unix.RT_TABLE_UNSPEC {
		add(fmt.Sprintf("lookup %d", r.policy.Table))
	}
	add(r.effects)
	return strings.Join(words, " ")
}

// The attributes of policy rules that package nl does not define (linux/fib_rules.h).
const (
	ruleDSCP          = 25
	ruleFlowLabel     = 26
	ruleFlowLabelMask = 27
	ruleSportMask     = 28
	ruleDportMask     = 29
	ruleDSCPMask      = 30
)

// knownRuleAttributes contains the attributes that the text of a rule shows in the ip command's
// syntax, or omits on purpose.
var knownRuleAttributes = []uint16{
	nl.FRA_DST, nl.FRA_SRC, nl.FRA_IIFNAME, nl.FRA_GOTO, nl.FRA_PRIORITY, nl.FRA_FWMARK, nl.FRA_FLOW,
	nl.FRA_TUN_ID, nl.FRA_SUPPRESS_IFGROUP, nl.FRA_SUPPRESS_PREFIXLEN, nl.FRA_TABLE, nl.FRA_FWMASK,
	nl.FRA_OIFNAME, nl.FRA_PAD, nl.FRA_L3MDEV, nl.FRA_UID_RANGE, nl.FRA_PROTOCOL, nl.FRA_IP_PROTO,
	nl.FRA_SPORT_RANGE, nl.FRA_DPORT_RANGE, ruleDSCP, ruleFlowLabel, ruleFlowLabelMask, ruleSportMask,
	ruleDportMask, ruleDSCPMask,
}

// ruleSelectors returns the text of the selectors other than the mark, and of the attributes and
// flags that this package does not know. body is a well-formed message of [decodeRule].
func ruleSelectors(body []byte) string {
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	// addMasked adds a number with its mask, unless the mask is absent or contains all bits.
	addMasked := func(name string, number, mask []byte, all uint64) {
		switch m := hostNumber(mask); {
		case number == nil && mask == nil:
		case mask == nil || m == all:
			add("%s %d", name, hostNumber(number))
		default:
			add("%s 0x%x/0x%x", name, hostNumber(number), m)
		}
	}
	flags := native.Uint32(body[8:])
	if flags&netlink.FibRuleInvert != 0 {
		add("not")
	}
	if body[2] != 0 || a.Get(nl.FRA_SRC) != nil {
		add("from %s", formatPrefix(a.Get(nl.FRA_SRC), body[2]))
	}
	if body[1] != 0 || a.Get(nl.FRA_DST) != nil {
		add("to %s", formatPrefix(a.Get(nl.FRA_DST), body[1]))
	}
	for _, i := range []struct {
		name string
		kind uint16
	}{{"iif", nl.FRA_IIFNAME}, {"oif", nl.FRA_OIFNAME}} {
		if value := a.Get(i.kind); value != nil {
			add("%s %s", i.name, rules.Printable(nlmsg.Text(value)))
		}
	}
	if value := a.Get(nl.FRA_IP_PROTO); value != nil {
		add("ipproto %s", rules.Protocol(hostNumber(value)))
	}
	if body[3] != 0 {
		add("tos %#x", body[3])
	}
	addMasked("dscp", a.Get(ruleDSCP), a.Get(ruleDSCPMask), 0x3f)
	for _, p := range []struct {
		name        string
		ports, mask uint16
	}{
		{"sport", nl.FRA_SPORT_RANGE, ruleSportMask}, {"dport", nl.FRA_DPORT_RANGE, ruleDportMask},
	} {
		ports := a.Get(p.ports)
		if len(ports) == 4 && native.Uint16(ports) != native.Uint16(ports[2:]) {
			add("%s %d-%d", p.name, native.Uint16(ports), native.Uint16(ports[2:]))
			ports = nil
		}
		addMasked(p.name, ports[:min(2, len(ports))], a.Get(p.mask), 0xffff)
	}
	if ids := a.Get(nl.FRA_UID_RANGE); len(ids) == 8 {
		add("uidrange %d-%d", native.Uint32(ids), native.Uint32(ids[4:]))
	}
	if id := a.Get(nl.FRA_TUN_ID); len(id) == 8 {
		add("tun_id %d", binary.BigEndian.Uint64(id))
	}
	if a.Get(ruleFlowLabel) != nil || a.Get(ruleFlowLabelMask) != nil {
		add("flowlabel 0x%x/0x%x", a.Number(ruleFlowLabel), a.Number(ruleFlowLabelMask))
	}
	a.Each(func(kind uint16, value []byte) {
		if !slices.Contains(knownRuleAttributes, kind) {
			add("attribute %d 0x%x", kind, value[:min(len(value), maxAttributeText)])
		}
	})
	if flags &^= netlink.FibRuleInvert | unresolvedFlag; flags != 0 {
		add("flags 0x%x", flags)
	}
	return strings.Join(words, " ")
}

// maxAttributeText is the maximum number of bytes of an unknown attribute in a text.
const maxAttributeText = 16

// unresolvedFlag is set in rules with the action goto whose target does not exist
// (FIB_RULE_UNRESOLVED).
const unresolvedFlag = 4

// ruleEffects returns the text of what a rule does, other than the lookup of the table. body is a
// well-formed message of [decodeRule].
func ruleEffects(body []byte) string {
	a := nlmsg.Attributes(body[unix.SizeofRtMsg:])
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if a.Get(nl.FRA_L3MDEV) != nil {
		add("lookup [l3mdev-table]")
	}
	for _, s := range []struct {
		name string
		kind uint16
	}{
		{"suppress_prefixlength", nl.FRA_SUPPRESS_PREFIXLEN}, {"suppress_ifgroup", nl.FRA_SUPPRESS_IFGROUP},
	} {
		if n, ok := a.HostNumber(s.kind); ok && n != ^uint32(0) {
			add("%s %d", s.name, n)
		}
	}
	if realms, ok := a.HostNumber(nl.FRA_FLOW); ok {
		add("realms %s", formatRealms(realms))
	}
	switch action := body[7]; action {
	case unix.FR_ACT_TO_TBL:
	case unix.FR_ACT_GOTO:
		target, _ := a.HostNumber(nl.FRA_GOTO)
		add("goto %d", target)
		if native.Uint32(body[8:])&unresolvedFlag != 0 {
			add("[unresolved]")
		}
	default:
		add("%s", cmp.Or(map[uint8]string{
			unix.FR_ACT_NOP: "nop", unix.FR_ACT_BLACKHOLE: "blackhole", unix.FR_ACT_UNREACHABLE: "unreachable",
			unix.FR_ACT_PROHIBIT: "prohibit",
		}[action], fmt.Sprintf("action %d", action)))
	}
	return strings.Join(words, " ")
}

// hostNumber decodes a number of 8, 16 or 32 bits in host byte order.
func hostNumber(value []byte) uint64 {
	switch len(value) {
	case 1:
		return uint64(value[0])
	case 2:
		return uint64(native.Uint16(value))
	case 4:
		return uint64(native.Uint32(value))
	}
	return 0
}

// formatPrefix formats a prefix.
func formatPrefix(address []byte, bits uint8) string {
	a, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(a, int(bits)).String()
}

// formatRealms formats the realms of the source, unless they are 0, and of the destination.
func formatRealms(realms uint32) string {
	if from := realms >> 16; from != 0 {
		return fmt.Sprintf("%d/%d", from, realms&0xffff)
	}
	return fmt.Sprint(realms)
}
