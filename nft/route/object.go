package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// loopback is the index of lo, whatever it is called: the kernel gives it to
// the first interface of every namespace, which cannot be removed
// (LOOPBACK_IFINDEX, loopback_net_init in drivers/net/loopback.c).
const loopback = 1

// ip6Metric is the metric of an IPv6 route without one, thus of Istio's too
// (IP6_RT_PRIO_USER, linux/ipv6_route.h). Left out, it would stand for any
// metric when a route is removed.
const ip6Metric = 1024

// An object is one thing in the kernel that redirection needs.
type object interface {
	family() rules.Family
	// add fails with EEXIST when the object is there.
	add(h *netlink.Handle) error
	// remove fails with one of the errors of [gone] when it is not.
	remove(h *netlink.Handle) error
	// String is like `policy rule "ip -4 rule priority 133 …"`.
	String() string
}

// gone reports whether err is the kernel's answer to the removal of a rule, a
// route or an address that is not there.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EADDRNOTAVAIL)
}

// policyRule is the rule of a policy route.
type policyRule rules.PolicyRoute

func (p policyRule) family() rules.Family { return p.Family }

func (p policyRule) add(h *netlink.Handle) error { return h.RuleAdd(p.kernel()) }

func (p policyRule) remove(h *netlink.Handle) error { return h.RuleDel(p.kernel()) }

func (p policyRule) String() string {
	return fmt.Sprintf("policy rule \"ip -%d rule priority %d fwmark 0x%x lookup %d\"",
		p.Family, p.Priority, p.Mark, p.Table)
}

func (p policyRule) kernel() *netlink.Rule {
	allBits := ^uint32(0)
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table = addressFamily(p.Family), p.Priority, int(p.Table)
	r.Mark, r.Mask = p.Mark, &allBits
	return r
}

// localRoute is the route of a policy route.
type localRoute struct {
	ip    rules.Family
	table uint32
}

func (r localRoute) family() rules.Family { return r.ip }

// add asks what is there when the kernel says that something is: to the kernel
// any default route of the table is the same.
func (r localRoute) add(h *netlink.Handle) error {
	err := h.RouteAdd(r.kernel())
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	switch found, readErr := r.exists(h); {
	case readErr != nil:
		return readErr
	case !found:
		return errors.New("the table has another default route")
	}
	return err
}

func (r localRoute) remove(h *netlink.Handle) error { return h.RouteDel(r.kernel()) }

func (r localRoute) exists(h *netlink.Handle) (bool, error) {
	list, err := r.list(h)
	return slices.ContainsFunc(list, r.is), err
}

// list returns all routes of the table.
func (r localRoute) list(h *netlink.Handle) ([]netlink.Route, error) {
	return dump("routes", func() ([]netlink.Route, error) {
		return h.RouteListFiltered(addressFamily(r.ip), &netlink.Route{Table: int(r.table)}, netlink.RT_FILTER_TABLE)
	})
}

// is reports whether a route of the table is this one.
func (r localRoute) is(found netlink.Route) bool {
	want := r.kernel()
	return found.Type == want.Type && found.Tos == want.Tos && found.LinkIndex == want.LinkIndex &&
		found.Priority == want.Priority && found.Dst.String() == want.Dst.String()
}

func (r localRoute) String() string {
	return fmt.Sprintf("route \"ip -%d route local default dev lo table %d\"", r.ip, r.table)
}

func (r localRoute) kernel() *netlink.Route {
	route := &netlink.Route{
		Dst:       &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		Type:      unix.RTN_LOCAL,
		Scope:     netlink.SCOPE_HOST, // of no meaning in IPv6
		LinkIndex: loopback,
		Table:     int(r.table),
	}
	if r.ip == rules.IPv6 {
		route.Dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
		route.Priority = ip6Metric
	}
	return route
}

// loopbackAddr is an address of lo, as a single one and not a network.
type loopbackAddr netip.Addr

func (a loopbackAddr) family() rules.Family { return rules.FamilyOf(netip.Addr(a)) }

func (a loopbackAddr) add(h *netlink.Handle) error { return h.AddrAdd(nil, a.kernel()) }

func (a loopbackAddr) remove(h *netlink.Handle) error { return h.AddrDel(nil, a.kernel()) }

func (a loopbackAddr) exists(h *netlink.Handle) (bool, error) {
	list, err := dump("addresses", func() ([]netlink.Addr, error) {
		return h.AddrList(nil, addressFamily(a.family()))
	})
	return slices.ContainsFunc(list, func(found netlink.Addr) bool {
		ip, _ := addressOf(found)
		return ip == netip.Addr(a) && found.LinkIndex == loopback
	}), err
}

func (a loopbackAddr) String() string {
	return fmt.Sprintf("address \"ip -%d address %s dev lo\"", a.family(), netip.Addr(a))
}

func (a loopbackAddr) kernel() *netlink.Addr {
	ip := netip.Addr(a)
	return &netlink.Addr{
		LinkIndex: loopback,
		IPNet:     &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())},
		// Else the address cannot be bound until the kernel's worker for duplicate
		// address detection has run (addrconf_dad_work in net/ipv6/addrconf.c).
		Flags: unix.IFA_F_NODAD,
	}
}

func addressFamily(f rules.Family) int {
	if f == rules.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
