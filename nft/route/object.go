package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// ip6Metric is the kernel's default metric of IPv6 routes, which Istio's routes have too
// (IP6_RT_PRIO_USER, linux/ipv6_route.h). A removal without a metric would remove a route with any
// metric.
const ip6Metric = 1024

// An object is a policy rule, a route or an address that redirection needs.
type object interface {
	family() rules.Family
	// add returns EEXIST if the object exists. Both sockets are of the namespace.
	add(h *netlink.Handle, c conn) error
	// remove returns an error that [isNotFound] recognizes if the object does not exist.
	remove(h *netlink.Handle) error
	// String returns a text like `policy rule "ip -4 rule priority 133 …"`.
	String() string
}

// isNotFound reports whether err is the kernel's error for the removal of a rule, a route or an
// address that does not exist.
func isNotFound(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) ||
		errors.Is(err, unix.EADDRNOTAVAIL)
}

// policyRule is the rule of a policy route.
type policyRule rules.PolicyRoute

func (p policyRule) family() rules.Family { return p.Family }

func (p policyRule) add(h *netlink.Handle, _ conn) error { return h.RuleAdd(p.kernel()) }

// addBeside adds the rule even if the kernel would return EEXIST for [policyRule.add], after the
// other rules with its priority.
func (p policyRule) addBeside(c conn) error {
	request := nl.NewNetlinkRequest(unix.RTM_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(addressFamily(p.Family)), Type: unix.FR_ACT_TO_TBL, // the action
	}})
	for _, a := range []struct {
		kind  int
		value uint32
	}{
		{nl.FRA_PRIORITY, uint32(p.Priority)},
		{nl.FRA_FWMARK, p.Mark},
		{nl.FRA_FWMASK, rules.PolicyRoute(p).Marked().Mask},
		{nl.FRA_TABLE, p.Table},
	} {
		request.AddData(nl.NewRtAttr(a.kind, native.AppendUint32(nil, a.value)))
	}
	return c.exchange(request.Serialize(), func(nlmsg.Message) error { return nil })
}

// remove must not be called if the kernel would remove another rule; see [removal].
func (p policyRule) remove(h *netlink.Handle) error { return h.RuleDel(p.kernel()) }

func (p policyRule) String() string {
	mark := fmt.Sprintf("0x%x", p.Mark)
	if p.Mask != 0 {
		mark += fmt.Sprintf("/0x%x", p.Mask)
	}
	return fmt.Sprintf("policy rule \"ip -%d rule priority %d fwmark %s lookup %d\"",
		p.Family, p.Priority, mark, p.Table)
}

// kernel returns the rule for package netlink.
func (p policyRule) kernel() *netlink.Rule {
	mask := rules.PolicyRoute(p).Marked().Mask
	r := netlink.NewRule()
	r.Family, r.Priority, r.Table = addressFamily(p.Family), p.Priority, int(p.Table)
	r.Mark, r.Mask = p.Mark, &mask
	return r
}

// localRoute is the route of a policy route.
type localRoute struct {
	ipFamily rules.Family
	table    uint32
}

func (r localRoute) family() rules.Family { return r.ipFamily }

// maxRouteAttempts is the maximum number of attempts to add a route that other processes add and
// remove at the same time.
const maxRouteAttempts = 100

// add returns EEXIST only if this route exists. The kernel also returns EEXIST if the table has
// another default route; add returns a different error in this case. If the table has neither
// route, another process has removed a route since the kernel returned EEXIST, and add tries again.
func (r localRoute) add(h *netlink.Handle, c conn) error {
	for range maxRouteAttempts {
		err := h.RouteAdd(r.kernel())
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
		found, readErr := r.list(c)
		switch {
		case readErr != nil:
			return readErr
		case slices.ContainsFunc(found, r.equals):
			return err
		case slices.ContainsFunc(found, r.conflicts):
			return errors.New("the table has another default route")
		}
	}
	return errors.New("other processes add and remove the route continuously")
}

func (r localRoute) remove(h *netlink.Handle) error { return h.RouteDel(r.kernel()) }

// list returns all routes of the table.
func (r localRoute) list(c conn) ([]foundRoute, error) { return c.listRoutes(r.ipFamily, r.table) }

// equals reports whether the route found is this route, without any further attribute.
func (r localRoute) equals(found foundRoute) bool {
	return r.conflicts(found) && found.kind == unix.RTN_LOCAL &&
		found.device == netns.LoopbackIndex && found.isPlain()
}

// conflicts reports whether the kernel refuses this route because the table has the route found.
func (r localRoute) conflicts(found foundRoute) bool {
	return found.family == r.ipFamily && found.table == r.table && found.tos == 0 &&
		int(found.metric) == r.metric() && found.destination.Bits() == 0 &&
		!found.source.IsValid()
}

func (r localRoute) String() string {
	return fmt.Sprintf("route \"ip -%d route local default dev lo table %d\"", r.ipFamily, r.table)
}

// kernel returns the route for package netlink.
func (r localRoute) kernel() *netlink.Route {
	route := &netlink.Route{
		Dst:       &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		Type:      unix.RTN_LOCAL,
		Scope:     netlink.SCOPE_HOST, // ignored in IPv6
		LinkIndex: netns.LoopbackIndex,
		Table:     int(r.table),
		Priority:  r.metric(),
	}
	if r.ipFamily == rules.IPv6 {
		route.Dst = &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	return route
}

// metric returns the metric of the route.
func (r localRoute) metric() int {
	if r.ipFamily == rules.IPv6 {
		return ip6Metric
	}
	return 0
}

// loopbackAddr is an address of lo with the prefix length of a single address.
type loopbackAddr netip.Addr

func (a loopbackAddr) family() rules.Family { return rules.FamilyOf(netip.Addr(a)) }

func (a loopbackAddr) add(h *netlink.Handle, _ conn) error { return h.AddrAdd(nil, a.kernel()) }

func (a loopbackAddr) remove(h *netlink.Handle) error { return h.AddrDel(nil, a.kernel()) }

func (a loopbackAddr) String() string {
	return fmt.Sprintf("address \"ip -%d address %s dev lo\"", a.family(), netip.Addr(a))
}

// kernel returns the address for package netlink.
func (a loopbackAddr) kernel() *netlink.Addr {
	ip := netip.Addr(a)
	return &netlink.Addr{
		LinkIndex: netns.LoopbackIndex,
		IPNet:     &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())},
		// Without this flag no socket can be bound to the address until the kernel's worker for
		// duplicate address detection has run (addrconf_dad_work in net/ipv6/addrconf.c).
		Flags: unix.IFA_F_NODAD,
	}
}

// addressFamily returns the address family of the kernel.
func addressFamily(f rules.Family) int {
	if f == rules.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}
