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

// A Description describes a route or a policy rule of a family, in the syntax of the ip command.
type Description struct {
	Family rules.Family
	Text   string
}

// UndeliveredLoopback returns descriptions of the routes to the addresses 127.0.0.1 and ::1, to
// which a redirection at output translates, that are not local: packets to these addresses may
// leave the host. It asks the kernel for the routes. Packets without a route are dropped.
func UndeliveredLoopback(ns *netns.NS) (descriptions []Description, err error) {
	h, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	for _, a := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		routes, err := h.RouteGet(a.AsSlice())
		if isUnroutable(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look up the route to %s: %w", a, err)
		}
		for _, found := range routes {
			if found.Type != unix.RTN_LOCAL {
				descriptions = append(descriptions, Description{
					rules.FamilyOf(a), FormatRoute(found, deviceName),
				})
			}
		}
	}
	return descriptions, nil
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
// host.
func PrecedingLocal(ns *netns.NS) (descriptions []Description, err error) {
	err = withReader(ns, func(r *reader) error {
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			if looksUpLocalFirst(r.policyRules, family) {
				continue
			}
			first := slices.IndexFunc(r.policyRules, func(f foundRule) bool {
				return f.policy.Family == family
			})
			descriptions = append(descriptions, Description{
				family, FormatRule(r.policyRules[first].kernel),
			})
		}
		return nil
	})
	return descriptions, err
}
