package route

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// maxTexts is the maximum number of routes that a function describes. A namespace may have any
// number of routes, and a few of them are sufficient for a message.
const maxTexts = 100

// LoopbackRoutes describes routes that may let packets bypass rules that match interfaces.
// Each list has at most 100 entries.
type LoopbackRoutes struct {
	// OverLoopback contains the routes that send packets over the loopback interface. It omits:
	//   - routes to loopback addresses,
	//   - the routes that [ReadAll] returns, if no other policy rule looks up their table,
	//   - routes to single addresses that the kernel adds with the addresses of interfaces, if the
	//     first effective policy rule looks up the table local. Packets to these addresses stay in
	//     the namespace, whatever their marks.
	OverLoopback []string
	// Encapsulating contains the routes that encapsulate packets and send them over the loopback
	// interface: the encapsulated packets may leave the host by another interface. It also contains
	// the routes that decapsulate packets, with the family [rules.Inet], because the inner packets
	// can have any family. The kernel delivers the inner packets without calling the chains at
	// prerouting.
	Encapsulating []Description
	// Passthrough contains the routes over the loopback interface that give packets of sockets
	// without a source address the source address of the proxy's connections to the application:
	// [rules.PassthroughIPv4] or [rules.PassthroughIPv6]. It omits routes to loopback addresses and
	// to this address.
	Passthrough []Description
}

// OverLoopback returns the routes of [LoopbackRoutes]. A namespace with more than 10,000 addresses,
// policy rules or nexthop objects, or more than a million routes of one family, is an error.
func OverLoopback(ns *netns.NS) (found LoopbackRoutes, err error) {
	err = withReader(ns, func(r *reader) error {
		// The addresses include tentative IPv6 addresses, whose routes the kernel has not added to
		// the table local yet.
		addresses, err := r.addresses()
		if err != nil {
			return err
		}
		o := overLoopback{reader: r, addresses: setOf(addresses)}
		for _, family := range []rules.Family{rules.IPv4, rules.IPv6} {
			part, err := o.list(family)
			if err != nil {
				return err
			}
			found.OverLoopback = append(found.OverLoopback, part.OverLoopback...)
			found.Encapsulating = append(found.Encapsulating, part.Encapsulating...)
			found.Passthrough = append(found.Passthrough, part.Passthrough...)
		}
		return nil
	})
	found.OverLoopback = found.OverLoopback[:min(len(found.OverLoopback), maxTexts)]
	found.Encapsulating = found.Encapsulating[:min(len(found.Encapsulating), maxTexts)]
	found.Passthrough = found.Passthrough[:min(len(found.Passthrough), maxTexts)]
	return found, err
}

// overLoopback lists routes over the loopback interface.
type overLoopback struct {
	*reader
	addresses map[netip.Addr]bool // of the interfaces
	nextHops  map[uint32]nextHopObject
}

// list returns the routes of a family that [OverLoopback] returns.
func (o *overLoopback) list(family rules.Family) (LoopbackRoutes, error) {
	isModeled := lookedUpByPlainRules(o.policyRules)
	localIsFirst := looksUpLocalFirst(o.policyRules, family)
	for {
		allResolved := true
		found, err := listAll("routes", func() (found LoopbackRoutes, err error) {
			err = o.forEachRoute(family, unix.RT_TABLE_UNSPEC, func(r foundRoute) error {
				allResolved = o.resolve(&r) && allResolved
				local := localRoute{family, r.table}
				if r.setsPassthrough() {
					addTo(&found.Passthrough, family, &r)
				}
				switch {
				case r.encap == unix.LWTUNNEL_ENCAP_SEG6_LOCAL:
					addTo(&found.Encapsulating, rules.Inet, &r)
				case !r.sendsOverLo():
				case r.encap != 0:
					addTo(&found.Encapsulating, family, &r)
				case r.destination.Addr().IsLoopback(), isModeled[local] && local.equals(r),
					localIsFirst && isOfAddress(&r, o.addresses):
				case len(found.OverLoopback) < maxTexts:
					found.OverLoopback = append(found.OverLoopback, r.String())
				}
				return nil
			})
			return found, err
		})
		if err != nil || allResolved {
			return found, err
		}
		if o.nextHops, err = o.readNextHops(); err != nil {
			return LoopbackRoutes{}, err
		}
	}
}

// resolve completes a route whose next hops the kernel reports only with its nexthop object. It
// returns false if the nexthop objects have not been read. An object that was added after they were
// read is unknown: resolve assumes the loopback interface and an unknown encapsulation.
func (o *overLoopback) resolve(r *foundRoute) bool {
	if r.nextHopID == 0 || r.device != 0 || r.hops != nil {
		return true
	}
	if o.nextHops == nil {
		return false
	}
	object, ok := o.nextHops[r.nextHopID]
	if !ok {
		object = nextHopObject{isOverLo: true, encap: unknownEncap}
	}
	r.isOverLo, r.encap = object.isOverLo, object.encap
	return true
}

// addTo adds a route to a list, unless the list has 100 entries.
func addTo(list *[]Description, family rules.Family, r *foundRoute) {
	if len(*list) < maxTexts {
		*list = append(*list, Description{Family: family, Text: r.String()})
	}
}

// looksUpLocalFirst reports whether the first policy rule of the family that may determine routes
// looks up the table local for all packets, as in a new namespace. It returns true if no policy
// rule of the family may determine routes.
func looksUpLocalFirst(policyRules []foundRule, family rules.Family) bool {
	i := firstRoutingRule(policyRules, family)
	return i < 0 || policyRules[i].looksUp(unix.RT_TABLE_LOCAL)
}

// firstRoutingRule returns the index of the first policy rule of the family that may determine
// routes, or -1.
func firstRoutingRule(policyRules []foundRule, family rules.Family) int {
	return slices.IndexFunc(policyRules, func(r foundRule) bool {
		return r.policy.Family == family && r.mayRoute()
	})
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

// isOfAddress reports whether the kernel, or a program that claims to be the kernel, added the
// route to one of the addresses.
func isOfAddress(r *foundRoute, addresses map[netip.Addr]bool) bool {
	return r.protocol == unix.RTPROT_KERNEL && r.destination.IsSingleIP() &&
		addresses[r.destination.Addr()]
}

// sendsOverLo reports whether the route sends packets over the loopback interface. The kernel sends
// packets of a local route over this interface even if the route names another interface
// (ip_route_output_key_hash_rcu in net/ipv4/route.c, ip6_rt_get_dev_rcu in net/ipv6/route.c).
func (r *foundRoute) sendsOverLo() bool {
	return r.kind == unix.RTN_LOCAL || r.kind == unix.RTN_UNICAST && r.isOverLo
}

// setsPassthrough reports whether [LoopbackRoutes.Passthrough] contains the route.
func (r *foundRoute) setsPassthrough() bool {
	return r.sendsOverLo() && r.preferred.IsValid() &&
		r.preferred == rules.ByFamily(r.family, rules.PassthroughIPv4(), rules.PassthroughIPv6()) &&
		!r.destination.Addr().IsLoopback() &&
		(r.destination.Addr() != r.preferred || !r.destination.IsSingleIP())
}
