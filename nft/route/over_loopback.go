package route

import (
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// maxOverLoopback is the maximum number of routes that [OverLoopback] returns. More routes change
// nothing for its callers, but would take memory for each of them.
const maxOverLoopback = 100

// OverLoopback returns descriptions of the routes that send packets over the loopback interface, at
// most 100. It omits routes to single addresses that the kernel adds with the addresses of
// interfaces, routes to loopback addresses, and the routes that [ReadAll] returns.
func OverLoopback(ns *netns.NS) ([]string, error) {
	h, err := open(ns)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	policyRules, err := readRules(h)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		routes, err := listAll("routes", func() ([]netlink.Route, error) {
			return h.RouteListFiltered(addressFamily(family),
				&netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		addresses := localAddresses(routes)
		for _, r := range routes {
			own := localRoute{family, uint32(r.Table)}
			isModeled := own.equals(r) && slices.ContainsFunc(policyRules,
				func(p foundRule) bool { return p.isPlain && p.route() == own })
			isOfAddress := isOfKernel(r) && addresses[r.Dst.String()]
			if !isOverLoopback(r) || isModeled || isOfAddress {
				continue
			}
			if len(texts) == maxOverLoopback {
				return texts, nil
			}
			texts = append(texts, routeText(own, r))
		}
	}
	return texts, nil
}

// localAddresses returns the destinations of the local routes in the table local.
func localAddresses(routes []netlink.Route) map[string]bool {
	addresses := map[string]bool{}
	for _, r := range routes {
		if r.Table == unix.RT_TABLE_LOCAL && r.Type == unix.RTN_LOCAL {
			addresses[r.Dst.String()] = true
		}
	}
	return addresses
}

// isOfKernel reports whether the kernel, or a program that claims to be the kernel, added the route
// to a single address.
func isOfKernel(r netlink.Route) bool {
	if r.Dst == nil {
		return false
	}
	ones, bits := r.Dst.Mask.Size()
	return r.Protocol == unix.RTPROT_KERNEL && ones == bits
}

// isOverLoopback reports whether the route sends packets to other than loopback addresses over the
// loopback interface. The kernel sends packets of a local route over this interface even if the
// route has another (ip_route_output_key_hash_rcu in net/ipv4/route.c, ip6_rt_get_dev_rcu in
// net/ipv6/route.c).
func isOverLoopback(r netlink.Route) bool {
	switch {
	case r.Dst != nil && r.Dst.IP.IsLoopback():
		return false
	case r.Type == unix.RTN_LOCAL:
		return true
	case r.Type != unix.RTN_UNICAST:
		return false
	}
	return r.LinkIndex == netns.LoopbackIndex ||
		slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool {
			return hop.LinkIndex == netns.LoopbackIndex
		})
}
