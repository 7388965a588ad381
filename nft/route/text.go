package route

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// FormatRule formats a policy rule like the ip command. It omits rare selectors, and actions other
// than the lookup of a table.
func FormatRule(r netlink.Rule) string {
	words := []string{fmt.Sprintf("ip -%d rule priority %d", FamilyOf(r.Family), r.Priority)}
	addIf := func(isPresent bool, format string, args ...any) {
		if isPresent {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	addIf(r.Invert, "not")
	addIf(r.Src != nil, "from %s", r.Src)
	addIf(r.Dst != nil, "to %s", r.Dst)
	addIf(r.IifName != "", "iif %s", r.IifName)
	addIf(r.OifName != "", "oif %s", r.OifName)
	addIf(r.IPProto != 0, "ipproto %d", r.IPProto)
	addIf(r.Tos != 0, "tos %#x", r.Tos)
	addIf(r.Sport != nil, "sport %v", r.Sport)
	addIf(r.Dport != nil, "dport %v", r.Dport)
	addIf(r.UIDRange != nil, "uidrange %v", r.UIDRange)
	mask := ^uint32(0)
	if r.Mask != nil {
		mask = *r.Mask
	}
	addIf(r.Mark != 0 && mask == ^uint32(0), "fwmark 0x%x", r.Mark)
	addIf(mask != ^uint32(0), "fwmark 0x%x/0x%x", r.Mark, mask)
	addIf(r.Table != unix.RT_TABLE_UNSPEC, "lookup %d", r.Table)
	addIf(r.Table == unix.RT_TABLE_UNSPEC, "without a table")
	return strings.Join(words, " ")
}

// routeTypes contains the ip command's names of route types.
var routeTypes = [...]string{
	unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast",
	unix.RTN_ANYCAST: "anycast", unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
	unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
	unix.RTN_NAT: "nat",
}

// routeType returns the ip command's name of a route type, or the number of an unknown type.
func routeType(number int) string {
	if number < 0 || number >= len(routeTypes) || routeTypes[number] == "" {
		return strconv.Itoa(number)
	}
	return routeTypes[number]
}

// FormatRoute formats a route like the ip command. device returns the name of the interface with an
// index.
func FormatRoute(r netlink.Route, device func(index int) string) string {
	words := []string{
		fmt.Sprintf("ip -%d route %s %s", FamilyOf(r.Family), routeType(r.Type), destination(r.Dst)),
	}
	addIf := func(isPresent bool, format string, args ...any) {
		if isPresent {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	addNextHop := func(gateway net.IP, index int) {
		addIf(len(gateway) > 0, "via %s", gateway)
		if index != 0 {
			words = append(words, "dev "+device(index))
		}
	}
	addIf(r.Tos != 0, "tos 0x%x", r.Tos)
	addNextHop(r.Gw, r.LinkIndex)
	for _, hop := range r.MultiPath {
		words = append(words, "nexthop")
		addNextHop(hop.Gw, hop.LinkIndex)
	}
	words = append(words, fmt.Sprintf("table %d", r.Table))
	addIf(len(r.Src) > 0, "src %s", r.Src)
	addIf(r.Priority != 0, "metric %d", r.Priority)
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
func destination(n *net.IPNet) string {
	if n != nil {
		if ones, _ := n.Mask.Size(); ones > 0 {
			return n.String()
		}
	}
	return "default"
}
