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
// to these addresses then stay in the namespace, whatever their marks. A namespace with more than
// 10,000 addresses or policy rules, or more than a million routes, is an error.
func OverLoopback(ns *netns.NS) (texts []string, err error) {
	addresses, err := ownAddresses(ns)
	if err != nil {
		return nil, err
	}
	err = withReader(ns, func(r *reader) error {
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			found, err := listAll("routes", func() ([]string, error) {
				return r.overLoopback(family, addresses, maxOverLoopback-len(texts))
			})
			if err != nil {
				return err
			}
			if texts = append(texts, found...); len(texts) == maxOverLoopback {
				return nil
			}
		}
		return nil
	})
	return texts, err
}

// overLoopback returns descriptions of the first routes of a family that [OverLoopback] returns, at
// most limit.
func (r *reader) overLoopback(
	family rules.Family, addresses map[netip.Addr]bool, limit int,
) (texts []string, err error) {
	isModeled := lookedUpByPlainRules(r.policyRules)
	localIsFirst := looksUpLocalFirst(r.policyRules, family)
	visited := 0
	err = forEachRoute(r.Handle, family, unix.RT_TABLE_UNSPEC, func(found netlink.Route) bool {
		visited++
		own := localRoute{family, uint32(found.Table)}
		isOmitted := isModeled[own] && own.equals(found) ||
			localIsFirst && isOfAddress(found, addresses)
		if isOverLoopback(found) && !isOmitted {
			texts = append(texts, FormatRoute(found, deviceName))
		}
		return len(texts) < limit && visited <= maxRoutes
	})
	if visited > maxRoutes {
		return nil, tooMany("routes", maxRoutes)
	}
	return texts, err
}

// looksUpLocalFirst reports whether the first policy rule of the family, if there is any, looks up
// the table local for all packets, as in a new namespace.
func looksUpLocalFirst(policyRules []foundRule, family rules.Family) bool {
	i := slices.IndexFunc(policyRules, func(r foundRule) bool { return r.policy.Family == family })
	return i < 0 || policyRules[i].looksUp(unix.RT_TABLE_LOCAL)
}

// lookedUpByPlainRules reports, for each route whose table policy rules look up, whether all of
// these rules are plain.
func lookedUpByPlainRules(policyRules []foundRule) map[localRoute]bool {
	lookedUp := map[localRoute]bool{}
	for _, r := range policyRules {
		allPlain, found := lookedUp[r.route()]
		lookedUp[r.route()] = r.isPlain && (allPlain || !found)
	}
	return lookedUp
}

// ownAddresses returns the addresses of the interfaces. They include an IPv6 address while the
// kernel checks that it is unique, and has not added its route to the table local.
func ownAddresses(ns *netns.NS) (map[netip.Addr]bool, error) {
	addresses, err := AllAddresses(ns)
	return setOf(addresses), err
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
