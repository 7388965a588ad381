package route

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// routeTypes contains the ip command's names of route types.
var routeTypes = [...]string{
	unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
	unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
	unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
	unix.RTN_NAT: "nat",
}

// encapNames contains the ip command's names of encapsulations (linux/lwtunnel.h).
var encapNames = [...]string{
	1: "mpls", 2: "ip", 3: "ila", 4: "ip6", 5: "seg6", 6: "bpf", 7: "seg6local", 8: "rpl", 9: "ioam6",
	10: "xfrm",
}

// unknownEncap is not the number of an encapsulation.
const unknownEncap = ^uint16(0)

// metricNames contains the ip command's names of the metrics of routes (RTAX_MTU).
var metricNames = [...]string{
	2: "mtu", 3: "window", 4: "rtt", 5: "rttvar", 6: "ssthresh", 7: "cwnd", 8: "advmss", 9: "reordering",
	10: "hoplimit", 11: "initcwnd", 12: "features", 13: "rto_min", 14: "initrwnd", 15: "quickack",
	16: "congctl", 17: "fastopen_no_cookie",
}

// nameOf returns the name of a number, or the number if it has no name.
func nameOf(names []string, number int) string {
	if number >= len(names) || names[number] == "" {
		return strconv.Itoa(number)
	}
	return names[number]
}

// String formats the route like the ip command, with the names lo and if2 for interfaces.
func (r foundRoute) String() string { return r.format(deviceName) }

// format formats the route like the ip command. It omits the parameters of encapsulations. device
// returns the name of the interface with an index.
func (r foundRoute) format(device func(index int) string) string {
	words := []string{
		fmt.Sprintf("ip -%d route %s %s", r.family, nameOf(routeTypes[:], int(r.kind)),
			destination(r.destination)),
	}
	addIf := func(isPresent bool, format string, args ...any) {
		if isPresent {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	addNextHop := func(h nextHop) {
		addIf(h.encap != 0, "encap %s", nameOf(encapNames[:], int(h.encap)))
		isIPv6 := h.gateway.Is6() && r.family == rules.IPv4
		addIf(isIPv6, "via inet6 %s", h.gateway)
		addIf(!isIPv6 && h.gateway.IsValid(), "via %s", h.gateway)
		if h.device != 0 {
			words = append(words, "dev "+device(int(h.device)))
		}
	}
	addIf(r.source.IsValid(), "from %s", r.source)
	addIf(r.tos != 0, "tos 0x%x", r.tos)
	addIf(r.nextHopID != 0, "nhid %d", r.nextHopID)
	addNextHop(r.nextHop)
	for _, hop := range r.hops {
		words = append(words, "nexthop")
		addNextHop(hop)
	}
	addIf(r.moreHops, "and more next hops")
	words = append(words, fmt.Sprintf("table %d", r.table))
	addIf(r.preferred.IsValid(), "src %s", r.preferred)
	addIf(r.metric != 0, "metric %d", r.metric)
	addIf(r.others != "", "%s", r.others)
	return strings.Join(words, " ")
}

// otherAttributes returns the text of the attributes that [foundRoute] has no field for, except
// those with their default value. The text contains no time, so that it does not change.
func otherAttributes(a nlmsg.Attributes) string {
	var words []string
	a.Each(func(kind uint16, value []byte) {
		switch {
		case slices.Contains([]uint16{
			unix.RTA_DST, unix.RTA_SRC, unix.RTA_TABLE, unix.RTA_PRIORITY, unix.RTA_PREFSRC, routeNextHopID,
			unix.RTA_MULTIPATH, unix.RTA_OIF, unix.RTA_GATEWAY, unix.RTA_VIA, unix.RTA_ENCAP_TYPE,
			unix.RTA_ENCAP,
		}, kind) || isDefaultAttribute(kind, value):
		case kind == unix.RTA_METRICS:
			words = append(words, metricsText(value))
		case kind == unix.RTA_FLOW:
			words = append(words, "realms "+formatRealms(uint32(hostNumber(value))))
		case kind == unix.RTA_CACHEINFO:
			words = append(words, "expires")
		case kind == unix.RTA_PREF:
			words = append(words, fmt.Sprintf("pref %d", hostNumber(value)))
		default:
			words = append(words, fmt.Sprintf("attribute %d", kind))
		}
	})
	return strings.Join(words, " ")
}

// metricsText returns the text of the metrics that are not 0, with the word lock for the metrics
// that the kernel must not change.
func metricsText(value []byte) string {
	metrics := nlmsg.Attributes(value)
	locked, _ := metrics.HostNumber(unix.RTAX_LOCK)
	var words []string
	metrics.Each(func(kind uint16, value []byte) {
		if kind == unix.RTAX_LOCK || isZero(value) {
			return
		}
		words = append(words, nameOf(metricNames[:], int(kind)))
		if kind < 32 && locked&(1<<kind) != 0 {
			words = append(words, "lock")
			locked &^= 1 << kind
		}
		if kind == unix.RTAX_CC_ALGO {
			words = append(words, rules.Printable(nlmsg.Text(value)))
		} else {
			words = append(words, fmt.Sprint(hostNumber(value)))
		}
	})
	if locked != 0 {
		words = append(words, fmt.Sprintf("lock 0x%x", locked))
	}
	return strings.Join(words, " ")
}

// deviceName returns the name of the loopback interface, and the name that the ip command uses for
// an unknown interface for other indexes.
func deviceName(index int) string {
	if index == netns.LoopbackIndex {
		return "lo"
	}
	return fmt.Sprintf("if%d", index)
}

// destination formats the destination of a route.
func destination(p netip.Prefix) string {
	if p.Bits() <= 0 {
		return "default"
	}
	return p.String()
}
