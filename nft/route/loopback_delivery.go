package route

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// UndeliveredLoopback returns descriptions of the routes to the addresses 127.0.0.1 and ::1, to
// which a redirection at output translates, that are not local: packets to these addresses may leave
// the host. It asks the kernel for the routes. Packets without a route are dropped.
func UndeliveredLoopback(ns *netns.NS) (descriptions []string, err error) {
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		routes, err := h.RouteGet(a.AsSlice())
		var errno unix.Errno
		if errors.As(err, &errno) {
			continue // the kernel has no route
		}
		if err != nil {
			return nil, fmt.Errorf("look up the route to %s: %w", a, err)
		}
		for _, found := range routes {
			if found.Type != unix.RTN_LOCAL {
				descriptions = append(descriptions, FormatRoute(found, deviceName))
			}
		}
	}
	return descriptions, nil
}

// PrecedingLocal returns descriptions of the policy rules that precede the rule of the table local,
// at most one for each family. Such a rule may route packets to an address of the host to another
// host.
func PrecedingLocal(ns *netns.NS) (descriptions []string, err error) {
	err = withReader(ns, func(r *reader) error {
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			if looksUpLocalFirst(r.policyRules, family) {
				continue
			}
			first := slices.IndexFunc(r.policyRules, func(f foundRule) bool {
				return f.policy.Family == family
			})
			descriptions = append(descriptions, FormatRule(r.policyRules[first].kernel))
		}
		return nil
	})
	return descriptions, err
}
