package route

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// addUnroutedAndForeign sets Unrouted and Others of found. Unrouted are the rules of this package
// without their route. Others are the foreign rules with [rules.PolicyPriority] and the foreign
// routes in the tables of this package's rules.
func addUnroutedAndForeign(h *netlink.Handle, policyRules []foundRule, found *rules.Routing) error {
	var listed []localRoute // routes whose table was already listed
	for _, r := range policyRules {
		switch {
		case r.policy.Priority != rules.PolicyPriority:
			continue
		case !r.isOwned():
			found.Others = append(found.Others, ruleText(r))
			continue
		case !slices.Contains(found.Policies, r.policy) &&
			!slices.Contains(found.Unrouted, r.policy):
			found.Unrouted = append(found.Unrouted, r.policy)
		}
		if slices.Contains(listed, r.route()) {
			continue
		}
		listed = append(listed, r.route())
		routes, err := r.route().list(h)
		if err != nil {
			return err
		}
		for _, other := range routes {
			if !r.route().equals(other) {
				found.Others = append(found.Others, routeText(r.route(), other))
			}
		}
	}
	return nil
}

// ruleText formats a rule like the ip command. It omits rare selectors, and actions other than the
// lookup of a table.
func ruleText(r foundRule) string {
	k := r.kernel
	words := []string{fmt.Sprintf("ip -%d rule priority %d", r.policy.Family, k.Priority)}
	addIf := func(isPresent bool, format string, args ...any) {
		if isPresent {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	addIf(k.Invert, "not")
	addIf(k.Src != nil, "from %s", k.Src)
	addIf(k.Dst != nil, "to %s", k.Dst)
	addIf(k.IifName != "", "iif %s", k.IifName)
	addIf(k.OifName != "", "oif %s", k.OifName)
	mask := ^uint32(0)
	if k.Mask != nil {
		mask = *k.Mask
	}
	addIf(k.Mark != 0 && mask == ^uint32(0), "fwmark 0x%x", k.Mark)
	addIf(mask != ^uint32(0), "fwmark 0x%x/0x%x", k.Mark, mask)
	addIf(k.Table != unix.RT_TABLE_UNSPEC, "lookup %d", k.Table)
	addIf(k.Table == unix.RT_TABLE_UNSPEC, "without a table")
	return strings.Join(words, " ")
}

// routeType returns the ip command's name of a route type, or the number of an unknown type.
func routeType(number int) string {
	names := [...]string{
		unix.RTN_UNICAST: "unicast", unix.RTN_LOCAL: "local",
		unix.RTN_BROADCAST: "broadcast", unix.RTN_ANYCAST: "anycast",
		unix.RTN_MULTICAST: "multicast", unix.RTN_BLACKHOLE: "blackhole",
		unix.RTN_UNREACHABLE: "unreachable", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw",
	}
	if number < 0 || number >= len(names) || names[number] == "" {
		return strconv.Itoa(number)
	}
	return names[number]
}

// routeText formats the route r, which is in the table of own, like the ip command, but with the
// index of the interface.
func routeText(own localRoute, r netlink.Route) string {
	text := fmt.Sprintf("ip -%d route %s %s", own.ipFamily, routeType(r.Type), destination(r.Dst))
	if r.Tos != 0 {
		text += fmt.Sprintf(" tos 0x%x", r.Tos)
	}
	if r.Gw != nil {
		text += " via " + r.Gw.String()
	}
	text += deviceText(r.LinkIndex)
	for _, hop := range r.MultiPath {
		text += " nexthop" + deviceText(hop.LinkIndex)
	}
	text += fmt.Sprintf(" table %d", own.table)
	if r.Priority != 0 {
		text += fmt.Sprintf(" metric %d", r.Priority)
	}
	return text
}

// deviceText formats the interface of a route. It returns "" if the route has none.
func deviceText(index int) string {
	switch index {
	case 0:
		return ""
	case netns.LoopbackIndex:
		return " dev lo"
	}
	return fmt.Sprintf(" dev if%d", index)
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
