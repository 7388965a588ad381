package xt

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-mesh/sluice/rules"
)

// This file formats matches that the model does not represent. The text identifies the match, and
// is the same for a match that was read from the kernel or from iptables-save.

// TCPMSSMatchText returns the text of the match tcpmss, which compares the maximum segment size
// option.
func TCPMSSMatchText(not bool, lowest, highest uint16) string {
	return fmt.Sprintf("-m tcpmss %s--mss %d:%d", negation(not), lowest, highest)
}

// A ConnBytes is the match connbytes (struct xt_connbytes_info). If From is greater than To, the
// match is negated.
type ConnBytes struct {
	From, To uint64
	// Mode and Direction are indexes of ConnBytesModes and ConnBytesDirections.
	Mode, Direction uint8
}

// ConnBytesModes and ConnBytesDirections are the values of --connbytes-mode and --connbytes-dir, in
// the order of enum xt_connbytes_what and enum xt_connbytes_direction.
var (
	ConnBytesModes      = [...]string{"packets", "bytes", "avgpkt"}
	ConnBytesDirections = [...]string{"original", "reply", "both"}
)

// String returns the text of iptables-save.
func (c ConnBytes) String() string {
	not, from, to := c.From > c.To, c.From, c.To
	if not {
		from, to = to, from
	}
	return fmt.Sprintf("-m connbytes %s--connbytes %d:%d --connbytes-mode %s --connbytes-dir %s",
		negation(not), from, to, ConnBytesModes[c.Mode], ConnBytesDirections[c.Direction])
}

// A ConnLimit is the match connlimit (struct xt_connlimit_info), which counts the connections of
// all addresses with the same first Bits bits.
type ConnLimit struct {
	Above       bool // the count must be above Limit; otherwise at most Limit
	Limit       uint32
	Bits        int
	Destination bool // the destination addresses are compared; otherwise the source addresses
}

// String returns the text of iptables-save.
func (c ConnLimit) String() string {
	compares, side := "upto", "saddr"
	if c.Above {
		compares = "above"
	}
	if c.Destination {
		side = "daddr"
	}
	return fmt.Sprintf("-m connlimit --connlimit-%s %d --connlimit-mask %d --connlimit-%s", compares,
		c.Limit, c.Bits, side)
}

// A Recent is the match recent (struct xt_recent_mtinfo_v1).
type Recent struct {
	Seconds, HitCount uint32
	Flags             uint8 // the options without a value; see RecentFlag
	Not               bool
	Name              string
	Destination       bool
	Mask              netip.Addr
}

// recentOptions contains the options that are bits of the field check_set (XT_RECENT_CHECK and
// others).
var recentOptions = [...]struct {
	bit    uint8
	option string
}{
	{1 << 0, "--rcheck"},
	{recentSet, "--set"},
	{recentUpdate, "--update"},
	{recentRemove, "--remove"},
	{recentTTL, "--rttl"},
	{recentReap, "--reap"},
}

// RecentFlag returns the bit of an option in [Recent.Flags], or 0 for an option with a value.
func RecentFlag(option string) uint8 {
	for _, o := range recentOptions {
		if o.option == option {
			return o.bit
		}
	}
	return 0
}

// String returns the text of iptables-save.
func (r Recent) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "-m recent %s", negation(r.Not))
	writeFlags := func(among uint8) {
		for _, o := range recentOptions {
			if r.Flags&among&o.bit != 0 {
				b.WriteString(o.option + " ")
			}
		}
	}
	writeFlags(^uint8(recentReap | recentTTL))
	if r.Seconds != 0 {
		fmt.Fprintf(&b, "--seconds %d ", r.Seconds)
	}
	writeFlags(recentReap)
	if r.HitCount != 0 {
		fmt.Fprintf(&b, "--hitcount %d ", r.HitCount)
	}
	writeFlags(recentTTL)
	side := "--rsource"
	if r.Destination {
		side = "--rdest"
	}
	fmt.Fprintf(&b, "--name %s --mask %s %s", r.Name, r.Mask, side)
	return b.String()
}

// MACMatchText returns the text of the match mac.
func MACMatchText(not bool, address net.HardwareAddr) string {
	return fmt.Sprintf("-m mac %s--mac-source %s", negation(not), address)
}

// HelperMatchText returns the text of the match helper.
func HelperMatchText(not bool, name string) string {
	return fmt.Sprintf("-m helper %s--helper %s", negation(not), name)
}

// PacketTypes are the values of --pkt-type in the order of the kernel (PACKET_HOST and others).
var PacketTypes = [...]string{"unicast", "broadcast", "multicast"}

// PacketTypeText returns the text of the match pkttype. packetType is an index of PacketTypes.
func PacketTypeText(not bool, packetType int) string {
	return fmt.Sprintf("-m pkttype %s--pkt-type %s", negation(not), PacketTypes[packetType])
}

// QuotaText returns the text of the match quota.
func QuotaText(not bool, quota uint64) string {
	return fmt.Sprintf("-m quota %s--quota %d", negation(not), quota)
}

// A StringMatch is the match string (struct xt_string_info).
type StringMatch struct {
	Not, IgnoreCase bool
	From, To        uint16 // offsets in the packet in bytes
	Algorithm       string
	Pattern         []byte
}

// MaxPattern is the maximum length of a pattern, and MaxAlgorithm the maximum length of the name of
// an algorithm, in bytes.
const (
	MaxPattern   = 128
	MaxAlgorithm = 15
)

// String returns the text, with the pattern in Go's syntax.
func (m StringMatch) String() string {
	text := fmt.Sprintf("-m string %s--string %q --algo %s", negation(m.Not), m.Pattern, m.Algorithm)
	if m.From != 0 {
		text += fmt.Sprint(" --from ", m.From)
	}
	if m.To != math.MaxUint16 {
		text += fmt.Sprint(" --to ", m.To)
	}
	if m.IgnoreCase {
		text += " --icase"
	}
	return text
}

// A Time is the match time (struct xt_time_info). Dates are seconds since 1970, and times are
// seconds since midnight. Bit n of MonthDays and WeekDays is day n, from 1 on. Monday is day 1.
type Time struct {
	DateStart, DateStop, TimeStart, TimeStop, MonthDays uint32
	WeekDays                                            uint8
	KernelTimeZone, Contiguous                          bool
}

// NewTime returns the match that every time satisfies.
func NewTime() Time {
	return Time{
		DateStop: math.MaxInt32, TimeStop: 24*60*60 - 1, MonthDays: ^uint32(1), WeekDays: 0xfe,
	}
}

// String returns the text of iptables-save, but without negations and with numbers for weekdays.
func (t Time) String() string {
	var b strings.Builder
	b.WriteString("-m time")
	every := NewTime()
	for _, o := range [...]struct {
		option              string
		value, defaultValue uint32
		format              func(uint32) string
	}{
		{"datestart", t.DateStart, every.DateStart, dateText},
		{"datestop", t.DateStop, every.DateStop, dateText},
		{"timestart", t.TimeStart, every.TimeStart, timeText},
		{"timestop", t.TimeStop, every.TimeStop, timeText},
		{"monthdays", t.MonthDays, every.MonthDays, daysText},
		{"weekdays", uint32(t.WeekDays), uint32(every.WeekDays), daysText},
	} {
		if o.value != o.defaultValue {
			fmt.Fprintf(&b, " --%s %s", o.option, o.format(o.value))
		}
	}
	if t.KernelTimeZone {
		b.WriteString(" --kerneltz")
	}
	if t.Contiguous {
		b.WriteString(" --contiguous")
	}
	return b.String()
}

func dateText(seconds uint32) string {
	return time.Unix(int64(seconds), 0).UTC().Format("2006-01-02T15:04:05")
}

func timeText(seconds uint32) string {
	return fmt.Sprintf("%02d:%02d:%02d", seconds/3600, seconds/60%60, seconds%60)
}

func daysText(bits uint32) string {
	var days []string
	for i := range 32 {
		if bits&(1<<i) != 0 {
			days = append(days, strconv.Itoa(i))
		}
	}
	return strings.Join(days, ",")
}

// matchText returns the text that identifies a match in a rule of the family. It returns false for
// a match whose name or revision the switch does not list, and for a structure that the text would
// not identify.
func matchText(family rules.Family, x Extension) (string, bool) {
	data := x.Data
	name := func(from, size int) string { return textBeforeZero(data[from : from+size]) }
	switch k := (key{x.Name, x.Revision}); {
	case k == key{"limit", 0} && len(data) >= 8:
		return Limit{native.Uint32(data), native.Uint32(data[4:])}.String(), true
	case k == key{"statistic", 0}:
		s, ok := decodeStatistic(data)
		return s.String(), ok
	case k == key{"length", 0} && len(data) >= 5:
		return LengthText(data[4] != 0, native.Uint16(data), native.Uint16(data[2:])), true
	case k == key{"ttl", 0} && len(data) >= 2:
		return HopMatchText(rules.IPv4, HopComparison(data[0]), data[1])
	case k == key{"hl", 0} && len(data) >= 2:
		return HopMatchText(rules.IPv6, HopComparison(data[0]), data[1])
	case k == key{"dscp", 0} && len(data) >= 2:
		return DSCPMatchText(data[1] != 0, data[0]), true
	case k == key{"tos", 1} && len(data) >= 3: // the mask precedes the value
		return TOSMatchText(data[2] != 0, data[1], data[0]), true
	case x.Name == "conntrack":
		return conntrackText(family, x)
	case k == key{"tcpmss", 0} && len(data) >= 5:
		return TCPMSSMatchText(data[4] != 0, native.Uint16(data), native.Uint16(data[2:])), true
	case k == key{"connbytes", 0} && len(data) >= 18:
		c := ConnBytes{native.Uint64(data), native.Uint64(data[8:]), data[16], data[17]}
		if int(c.Mode) < len(ConnBytesModes) && int(c.Direction) < len(ConnBytesDirections) {
			return c.String(), true
		}
	case k == key{"connlimit", 1} && len(data) >= 24 && family != rules.Inet:
		const inverted, destination = 1, 2
		flags := native.Uint32(data[20:])
		ones, bits := net.IPMask(data[:familySize(family)]).Size()
		return ConnLimit{
			flags&inverted == 0, native.Uint32(data[16:]), ones, flags&destination != 0,
		}.String(), bits > 0 && flags&^(inverted|destination) == 0
	case k == key{"addrtype", 1}:
		m, ok := decodeAddrTypeMatch(x.Revision, data)
		return m.String(), ok
	case k == key{"recent", 1} && len(data) >= 228 && family != rules.Inet:
		mask, _ := netip.AddrFromSlice(data[212 : 212+familySize(family)])
		return Recent{
			Seconds: native.Uint32(data), HitCount: native.Uint32(data[4:]),
			Flags: data[recentFlagsOffset], Not: data[recentFlagsOffset+1] != 0,
			Name: name(recentNameOffset, 200), Destination: data[210] == 1, Mask: mask,
		}.String(), data[recentFlagsOffset] < recentReap<<1 && data[210] <= 1
	case k == key{"mac", 0} && len(data) >= 12:
		return MACMatchText(native.Uint32(data[8:]) != 0, net.HardwareAddr(data[:6])), true
	case k == key{"helper", 0} && len(data) >= 34:
		return HelperMatchText(native.Uint32(data) != 0, name(4, 30)), true
	case k == key{"pkttype", 0} && len(data) >= 8:
		if t := native.Uint32(data); t < uint32(len(PacketTypes)) {
			return PacketTypeText(native.Uint32(data[4:]) != 0, int(t)), true
		}
	case k == key{"quota", 0} && len(data) >= 16:
		return QuotaText(native.Uint32(data)&1 != 0, native.Uint64(data[8:])),
			native.Uint32(data)&^1 == 0
	case k == key{"string", 1} && len(data) >= 150 && int(data[148]) <= MaxPattern:
		const inverted, ignoresCase = 1, 2
		return StringMatch{
			Not: data[149]&inverted != 0, IgnoreCase: data[149]&ignoresCase != 0,
			From: native.Uint16(data), To: native.Uint16(data[2:]),
			Algorithm: name(4, MaxAlgorithm+1), Pattern: data[20 : 20+int(data[148])],
		}.String(), data[149]&^(inverted|ignoresCase) == 0
	case k == key{"time", 0} && len(data) >= 22:
		const local, contiguous = 1, 2
		return Time{
			native.Uint32(data), native.Uint32(data[4:]), native.Uint32(data[8:]),
			native.Uint32(data[12:]), native.Uint32(data[16:]), data[20], data[21]&local != 0,
			data[21]&contiguous != 0,
		}.String(), data[21]&^(local|contiguous) == 0
	case k == key{"physdev", 0}:
		return physicalDeviceText(data)
	case x.Name == "socket" && x.Revision >= 1 && x.Revision <= 3 && len(data) >= 1:
		return SocketText(data[0]), data[0] < 1<<len(SocketOptions)
	case k == key{"frag", 0}:
		return fragmentText(data)
	case k == key{"ipv6header", 0}:
		return headersText(data)
	case k == key{"u32", 0}:
		return u32Text(data)
	case k == key{"hashlimit", 3}:
		return hashLimitText(data)
	}
	return "", false
}
