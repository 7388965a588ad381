package route

import (
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// OverLoopback returns descriptions of the routes that send packets over the loopback interface. It
// omits routes to single addresses that the kernel adds with the addresses of interfaces, routes to
// loopback addresses, and the routes that [ReadAll] returns.
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
	found, err := readRouting(h, policyRules, func(r foundRule) bool { return r.isPlain })
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
		addresses, err := listAll("addresses", func() ([]netlink.Addr, error) {
			return h.AddrList(nil, addressFamily(family))
		})
		if err != nil {
			return nil, err
		}
		routes, err := listAll("routes", func() ([]netlink.Route, error) {
			return h.RouteListFiltered(addressFamily(family),
				&netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			own := localRoute{family, uint32(r.Table)}
			isModeled := own.equals(r) && slices.ContainsFunc(found.Policies,
				func(p rules.PolicyRoute) bool { return p.Family == family && p.Table == own.table })
			isOfAddress := isOfKernel(r) && isAddress(addresses, r.Dst.IP)
			if isOverLoopback(r) && !isModeled && !isOfAddress {
				texts = append(texts, routeText(own, r))
			}
		}
	}
	return texts, nil
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

// isAddress reports whether the interfaces have the address. While the kernel checks that an IPv6
// address is unique, the address is in the list, but has no route in the table local.
func isAddress(addresses []netlink.Addr, ip net.IP) bool {
	return slices.ContainsFunc(addresses, func(a netlink.Addr) bool {
		return a.IPNet != nil && a.IP.Equal(ip)
	})
}

// isOverLoopback reports whether the route sends packets to other than loopback addresses over the
// loopback interface.
func isOverLoopback(r netlink.Route) bool {
	if r.Type != unix.RTN_UNICAST && r.Type != unix.RTN_LOCAL || r.Dst != nil && r.Dst.IP.IsLoopback() {
		return false
	}
	return r.LinkIndex == netns.LoopbackIndex ||
		slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool {
			return hop.LinkIndex == netns.LoopbackIndex
		})
}
