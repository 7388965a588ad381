package route

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// A Description describes a route or a policy rule of a family, in the syntax of the ip command.
type Description struct {
	Family rules.Family
	Text   string
	// Selective reports whether a route applies only to packets with a certain type of service or
	// source address, and other packets do not leave the namespace.
	Selective bool
}

// UndeliveredLoopback returns descriptions of routes to 127.0.0.1 and ::1 that do not deliver
// packets locally. A redirection at output translates destinations to these addresses, and such
// routes may send the packets to another host. UndeliveredLoopback asks the kernel for the route of
// packets without a type of service and a source address. Because processes can choose both, it
// also looks for routes that require them. The kernel drops packets without a route.
func UndeliveredLoopback(ns *netns.NS) (descriptions []Description, err error) {
	r, err := newReader(ns)
	if err != nil {
		return nil, err
	}
	defer r.close()
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		found, err := r.undelivered(a)
		if err != nil {
			return nil, fmt.Errorf("look up the routes to %s: %w", a, err)
		}
		descriptions = append(descriptions, found...)
	}
	return descriptions, nil
}

// undelivered returns descriptions of routes to the address that do not deliver packets locally. If
// the kernel answers with such a route, undelivered returns only this route.
func (c conn) undelivered(a netip.Addr) (descriptions []Description, err error) {
	var routes []foundRoute
	isSelective := false
	err = c.exchange(routeRequest(a), func(m nlmsg.Message) error {
		found, err := decodeAnswer(m.Body)
		if m.Type != unix.RTM_NEWROUTE || err != nil || found.endsHere() {
			return err
		}
		routes = append(routes, found)
		return nil
	})
	if isUnroutable(err) {
		err = nil
	}
	if err == nil && len(routes) == 0 {
		routes, isSelective, err = c.otherRoutes(a)
	}
	for _, r := range routes {
		descriptions = append(descriptions, Description{rules.FamilyOf(a), r.String(), isSelective})
	}
	return descriptions, err
}

// otherRoutes returns the routes, at most 100, by which packets to the address may leave the
// namespace if they have a type of service or a source address. It assumes that the kernel looks up
// the table local first ([PrecedingLocal]). isSelective reports whether packets without a type of
// service and without a source address certainly do not leave the namespace.
func (c conn) otherRoutes(a netip.Addr) (routes []foundRoute, isSelective bool, err error) {
	local, err := c.routesTo(a, unix.RT_TABLE_LOCAL)
	if err != nil {
		return nil, false, err
	}
	last := lastRoute(local)
	// Without a last route to the single address, other tables matter: the kernel looks them up, or
	// it has merged the table main into the table local and prefers longer prefixes of main
	// (fib_trie_table in net/ipv4/fib_trie.c).
	candidates := local
	if last == nil || !last.destination.IsSingleIP() {
		if candidates, err = c.routesTo(a, unix.RT_TABLE_UNSPEC); err != nil {
			return nil, false, err
		}
	}
	for _, r := range candidates {
		// A route of type throw in the table local makes the kernel look up other tables.
		isIgnored := r.kind == unix.RTN_THROW && r.table != unix.RT_TABLE_LOCAL
		if !r.endsHere() && !isIgnored && (last == nil || r.mayPrecede(last)) {
			routes = append(routes, r)
		}
	}
	return routes[:min(len(routes), maxTexts)], last != nil, nil
}

// routesTo returns the routes of a table, or of all tables if table is RT_TABLE_UNSPEC, whose
// destination contains the address.
func (c conn) routesTo(a netip.Addr, table uint32) ([]foundRoute, error) {
	return listAll("routes", func() (routes []foundRoute, err error) {
		err = c.forEachRoute(rules.FamilyOf(a), table, func(r foundRoute) error {
			if r.destination.Contains(a) {
				if len(routes) == maxObjects {
					return tooMany(fmt.Sprintf("routes to %s", a), maxObjects)
				}
				routes = append(routes, r)
			}
			return nil
		})
		return routes, err
	})
}

// lastRoute returns the most preferred of the routes that apply to all packets to the address and
// deliver or drop them, or nil. The kernel uses no less preferred route.
func lastRoute(routes []foundRoute) (last *foundRoute) {
	for i := range routes {
		r := &routes[i]
		if r.endsHere() && !r.isSelective() && r.flags&unix.RTNH_F_DEAD == 0 &&
			(last == nil || r.mayPrecede(last)) {
			last = r
		}
	}
	return last
}

// mayPrecede reports whether the kernel may prefer the route to other if both apply to a packet.
// The kernel prefers a longer destination prefix and then, whatever the metric, a selective route.
func (r *foundRoute) mayPrecede(other *foundRoute) bool {
	if r.destination.Bits() != other.destination.Bits() {
		return r.destination.Bits() > other.destination.Bits()
	}
	return r.isSelective() || r.metric <= other.metric
}

// isUnroutable reports whether the error of a request for a route means that no packets reach the
// destination: there is no route, the route drops packets (fib_props in net/ipv4/fib_semantics.c),
// or the kernel does not support the family.
func isUnroutable(err error) bool {
	for _, errno := range []unix.Errno{
		unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EACCES, unix.EINVAL,
		unix.EAFNOSUPPORT, unix.EOPNOTSUPP,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// PrecedingLocal returns descriptions of the policy rules that precede the rule of the table local,
// at most one for each family. Such a rule may route packets to an address of the host to another
// host. Rules that only drop packets, or have no effect, are omitted.
func PrecedingLocal(ns *netns.NS) (descriptions []Description, err error) {
	err = withReader(ns, func(r *reader) error {
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			if !looksUpLocalFirst(r.policyRules, family) {
				first := r.policyRules[firstRoutingRule(r.policyRules, family)]
				descriptions = append(descriptions, Description{Family: family, Text: first.String()})
			}
		}
		return nil
	})
	return descriptions, err
}
