package route

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// others adds to what was found of our routing what is not ours in its places.
func others(h *netlink.Handle, list []foundRule, found *rules.Routing) error {
	var seen []localRoute
	for _, r := range list {
		switch {
		case r.policy.Priority != rules.PolicyPriority:
			continue
		case !r.ours():
			found.Others = append(found.Others, ruleText(r))
			continue
		case !slices.Contains(found.Policies, r.policy) && !slices.Contains(found.Unrouted, r.policy):
			found.Unrouted = append(found.Unrouted, r.policy)
		}
		if slices.Contains(seen, r.route()) {
			continue
		}
		seen = append(seen, r.route())
		routes, err := r.route().list(h)
		if err != nil {
			return err
		}
		for _, other := range routes {
			if !r.route().is(other) {
				found.Others = append(found.Others, routeText(r.route(), other))
			}
		}
	}
	return nil
}

// ruleText writes a rule as the ip command does, as far as it is known; rare selectors are left
// out.
func ruleText(r foundRule) string {
	k := r.kernel
	words := []string{fmt.Sprintf("ip -%d rule priority %d", r.policy.Family, k.Priority)}
	add := func(is bool, format string, args ...any) {
		if is {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	add(k.Invert, "not")
	add(k.Src != nil, "from %s", k.Src)
	add(k.Dst != nil, "to %s", k.Dst)
	add(k.IifName != "", "iif %s", k.IifName)
	add(k.OifName != "", "oif %s", k.OifName)
	mask := ^uint32(0)
	if k.Mask != nil {
		mask = *k.Mask
	}
	add(k.Mark != 0 && mask == ^uint32(0), "fwmark 0x%x", k.Mark)
	add(mask != ^uint32(0), "fwmark 0x%x/0x%x", k.Mark, mask)
	add(k.Table != unix.RT_TABLE_UNSPEC, "lookup %d", k.Table)
	add(k.Table == unix.RT_TABLE_UNSPEC, "without a table")
	return strings.Join(words, " ")
}

// routeType is the ip command's name of what happens to packets that take a route, empty for types
// that are not set by hand.
func routeType(number int) string {
	names := [...]string{
		unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local", unix.RTN_BROADCAST: "broadcast", unix.RTN_BLACKHOLE: "blackhole",
		unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
	}
	if number < 0 || number >= len(names) {
		return ""
	}
	return names[number]
}

// routeText writes a route of the table of another as the ip command does, but with the number of
// the device.
func routeText(of localRoute, r netlink.Route) string {
	text := fmt.Sprintf("ip -%d route %s %s", of.ip, routeType(r.Type), destination(r.Dst))
	if r.Tos != 0 {
		text += fmt.Sprintf(" tos 0x%x", r.Tos)
	}
	if r.Gw != nil {
		text += " via " + r.Gw.String()
	}
	switch r.LinkIndex {
	case 0:
	case loopback:
		text += " dev lo"
	default:
		text += fmt.Sprintf(" dev if%d", r.LinkIndex)
	}
	text += fmt.Sprintf(" table %d", of.table)
	if r.Priority != 0 {
		text += fmt.Sprintf(" metric %d", r.Priority)
	}
	return text
}

func destination(n *net.IPNet) string {
	if n != nil {
		if ones, _ := n.Mask.Size(); ones > 0 {
			return n.String()
		}
	}
	return "default"
}
