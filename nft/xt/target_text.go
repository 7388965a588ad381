package xt

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// This file describes targets that the model does not represent. The text identifies the target,
// and is the same for a target from the kernel and from iptables-save.

// A Queue is the target NFQUEUE (struct xt_NFQ_info_v3) for the queues from First to Last.
type Queue struct {
	First, Last       uint16
	Bypass, CPUFanout bool
}

// String returns the text.
func (q Queue) String() string {
	text := fmt.Sprintf("-j NFQUEUE --queue-balance %d:%d", q.First, q.Last)
	if q.First == q.Last {
		text = fmt.Sprintf("-j NFQUEUE --queue-num %d", q.First)
	}
	if q.Bypass {
		text += " --queue-bypass"
	}
	if q.CPUFanout {
		text += " --queue-cpu-fanout"
	}
	return text
}

// TEEText returns the text of the target TEE. The name of the interface may be empty.
func TEEText(gateway netip.Addr, device string) string {
	text := fmt.Sprint("-j TEE --gateway ", gateway)
	if device != "" {
		text += " --oif " + device
	}
	return text
}

// NETMAPText returns the text of the target NETMAP.
func NETMAPText(to netip.Prefix) string { return fmt.Sprint("-j NETMAP --to ", to.Masked()) }

// A ConntrackTarget is a target CT that the model does not represent (struct xt_ct_target_info_v1).
type ConntrackTarget struct {
	Zone uint16
	// ZoneFlags contains ZoneOriginal, ZoneReply and ZoneFromMark.
	ZoneFlags uint16
	// Bit n of Events stands for the variable ConntrackEvents[n], and bit n of ExpectationEvents
	// for the variable ExpectationEvents[n].
	Events, ExpectationEvents uint32
	Helper, Timeout           string
}

// Flags of the zone (XT_CT_ZONE_DIR_ORIG and others): the zone applies to one direction, or is the
// mark of the packet.
const (
	ZoneOriginal = 1 << 2
	ZoneReply    = 1 << 3
	ZoneFromMark = 1 << 4
)

// ConntrackEvents are the names of events in the order of their bits (enum ip_conntrack_events).
// ExpectationEvents are the names of events of expectations.
var (
	ConntrackEvents = [...]string{
		"new", "related", "destroy", "reply", "assured", "protoinfo", "helper", "mark", "natseqinfo",
		"secmark",
	}
	ExpectationEvents = [...]string{"new"}
)

// String returns the text.
func (c ConntrackTarget) String() string {
	var b strings.Builder
	zone := fmt.Sprint(c.Zone)
	if c.ZoneFlags&ZoneFromMark != 0 {
		zone = "mark"
	}
	option := "--zone"
	switch c.ZoneFlags &^ ZoneFromMark {
	case ZoneOriginal:
		option += "-orig"
	case ZoneReply:
		option += "-reply"
	}
	b.WriteString("-j CT")
	if c.Zone != 0 || c.ZoneFlags != 0 {
		fmt.Fprintf(&b, " %s %s", option, zone)
	}
	if c.Events != 0 {
		fmt.Fprintf(&b, " --ctevents %#x", c.Events)
	}
	if c.ExpectationEvents != 0 {
		fmt.Fprintf(&b, " --expevents %#x", c.ExpectationEvents)
	}
	if c.Helper != "" {
		fmt.Fprintf(&b, " --helper %s", c.Helper)
	}
	if c.Timeout != "" {
		fmt.Fprintf(&b, " --timeout %s", c.Timeout)
	}
	return b.String()
}

// targetText returns the text of a target of this file. It returns false for other targets, and if
// the text would not identify the target.
func targetText(family rules.Family, x Extension) (string, bool) {
	data := x.Data
	switch k := (key{x.Name, x.Revision}); {
	case x.Name == "NFQUEUE" && x.Revision <= 3 && len(data) >= queueSizes[x.Revision]:
		return queueText(x)
	case k == key{"TEE", 1} && len(data) >= 32 && family != rules.Inet:
		return TEEText(decodeAddr(family, data), textBeforeZero(data[16:32])), true
	case k == key{"NETMAP", 0}:
		return netmapText(family, data)
	case (k == key{"CT", 1} || k == key{"CT", 2}) && len(data) >= ctSizes[1]:
		const timeoutOffset = ctHelperOffset + ctHelperSize
		flags := native.Uint16(data)
		const directions = ZoneOriginal | ZoneReply
		return ConntrackTarget{
			native.Uint16(data[ctZoneOffset:]), flags, native.Uint32(data[4:]),
			native.Uint32(data[8:]), textBeforeZero(data[ctHelperOffset:timeoutOffset]),
			textBeforeZero(data[timeoutOffset:ctUserSizes[1]]),
		}.String(), flags&^(directions|ZoneFromMark) == 0 && flags&directions != directions
	}
	return "", false
}

// queueSizes contains the sizes of struct xt_NFQ_info and its later revisions.
var queueSizes = [...]int{2, 4, 6, 6}

// queueText decodes struct xt_NFQ_info or a later revision. Revision 1 adds the number of queues,
// and revision 2 adds flags.
func queueText(x Extension) (string, bool) {
	const bypass, fanout = 1, 2
	first, total, flags := native.Uint16(x.Data), uint16(1), uint16(0)
	if x.Revision >= 1 {
		total = native.Uint16(x.Data[2:])
	}
	if x.Revision >= 2 {
		flags = native.Uint16(x.Data[4:])
	}
	last := first + total - 1
	return Queue{first, last, flags&bypass != 0, flags&fanout != 0}.String(),
		total > 0 && last >= first && flags&^(bypass|fanout) == 0
}

// netmapText decodes struct nf_nat_ipv4_multi_range_compat, or for IPv6 struct nf_nat_range, which
// contain the first and the last address of the prefix.
func netmapText(family rules.Family, data []byte) (string, bool) {
	var flags uint32
	var first, last []byte
	switch {
	case family == rules.IPv4 && len(data) >= rangeSize4 && native.Uint32(data[rangeCount4:]) == 1:
		flags, first, last = native.Uint32(data[rangeFlags4:]), data[rangeAddrs4:rangeAddrs4+4],
			data[rangeAddrs4+4:rangeAddrs4+8]
	case family == rules.IPv6 && len(data) >= rangeSize:
		flags, first, last = native.Uint32(data), data[rangeAddrs:rangeAddrs+addrSize],
			data[rangeAddrs+addrSize:rangeAddrs+2*addrSize]
	default:
		return "", false
	}
	r := netipx.IPRangeFrom(decodeAddr(family, first), decodeAddr(family, last))
	prefix, ok := r.Prefix()
	return NETMAPText(prefix), ok && flags == natAddrs
}
