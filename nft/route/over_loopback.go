package route

import (
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// maxOverLoopback is the maximum number of routes that [OverLoopback] returns. A namespace may have
// any number of routes, and a few of them are sufficient for a message.
const maxOverLoopback = 100

// OverLoopback returns descriptions of the routes that send packets over the loopback interface, at
// most 100. It omits routes to loopback addresses, and the routes that [ReadAll] returns if no
// other policy rule looks up their table. It also omits routes to single addresses that the kernel
// adds with the addresses of interfaces, if the first policy rule looks up the table local: packets
// to these addresses then stay in the namespace, whatever their marks.
func OverLoopback(ns *netns.NS) (texts []string, err error) {
	err = withRules(ns, func(h *netlink.Handle, policyRules []foundRule) error {
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			routes, err := listRoutes(h, family, unix.RT_TABLE_UNSPEC)
			if err != nil {
				return err
			}
			addresses, err := ownAddresses(h, family)
			if err != nil {
				return err
			}
			localIsFirst := looksUpLocalFirst(policyRules, family)
			for _, r := range routes {
				own := localRoute{family, uint32(r.Table)}
				isModeled := own.equals(r) && isLookedUpByPlainRules(own, policyRules)
				if !isOverLoopback(r) || isModeled || localIsFirst && isOfAddress(r, addresses) {
					continue
				}
				if len(texts) == maxOverLoopback {
					return nil
				}
				texts = append(texts, FormatRoute(r, deviceName))
			}
		}
		return nil
	})
	return texts, err
}

// looksUpLocalFirst reports whether the first policy rule of the family, if there is any, is the
// rule of a new namespace that looks up the table local.
func looksUpLocalFirst(policyRules []foundRule, family rules.Family) bool {
	i := slices.IndexFunc(policyRules, func(r foundRule) bool { return r.policy.Family == family })
	return i < 0 || policyRules[i].isDefault() && policyRules[i].kernel.Table == unix.RT_TABLE_LOCAL
}

// isLookedUpByPlainRules reports whether policy rules look up the table of the route, and all of
// them are plain.
func isLookedUpByPlainRules(route localRoute, policyRules []foundRule) bool {
	isLookedUp := false
	for _, r := range policyRules {
		if r.route() == route {
			isLookedUp = true
			if !r.isPlain {
				return false
			}
		}
	}
	return isLookedUp
}

// ownAddresses returns the addresses of the interfaces. They include an IPv6 address while the
// kernel checks that it is unique, and has not added its route to the table local.
func ownAddresses(h *netlink.Handle, family rules.Family) (map[netip.Addr]bool, error) {
	list, err := listAddrs(h, family)
	addresses := map[netip.Addr]bool{}
	for _, a := range list {
		if ip, ok := localAddr(a); ok {
			addresses[ip] = true
		}
	}
	return addresses, err
}

// isOfAddress reports whether the kernel, or a program that claims to be the kernel, added the
// route to one of the addresses.
func isOfAddress(r netlink.Route, addresses map[netip.Addr]bool) bool {
	if r.Dst == nil || r.Protocol != unix.RTPROT_KERNEL {
		return false
	}
	ones, bits := r.Dst.Mask.Size()
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	return ok && ones == bits && addresses[a]
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
