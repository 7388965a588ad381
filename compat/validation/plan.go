package validation

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// A probe is a planned connection or datagram.
type probe struct {
	// Check contains no result yet. Its status is set only if the probe cannot be sent.
	Check
	packet rules.Packet // the first packet; source port 0 means any port
	trace  rules.Trace  // of packet, under the rules compiled from the parameters
	// hint is the remedy if the probe fails, or empty.
	hint string
	// outside is set if this process sends the probe from its own namespace, outside the pod's. If
	// the probe does not arrive, a connection to control shows whether the network path is the
	// cause. A connection to control arrives there whether or not the rules are correct.
	outside bool
	control netip.AddrPort
	// listenerExpected reports whether a listener must be at the destination.
	listenerExpected bool
	// transparent is set if the socket is bound to a source address that the pod does not have.
	transparent bool
	// agent is the owner of the DNS proxy (Istio's agent) whose reply to a query must arrive. It is
	// nil if it is sufficient that the query arrives.
	agent *rules.Owner
}

// planInputs are the inputs of a plan other than the parameters.
type planInputs struct {
	self rules.Owner // the owner of the sockets of this process
	// mayRunAs reports whether the process may create sockets of the owner.
	mayRunAs func(rules.Owner) bool
	// route returns the source address and the device for a destination.
	route func(netip.Addr) (source netip.Addr, device string, err error)
	// mayUseTransparent reports whether transparent and marked sockets are permitted.
	mayUseTransparent bool
	// running reports whether a proxy is already listening.
	running bool
	// isOutside reports whether this process is outside the namespace.
	isOutside bool
	// device returns the name of the interface with the address.
	device func(netip.Addr) string
	// outsideSource returns the source address of connections from this process, outside the
	// namespace, to the pod's address. It is invalid if no direct route leads there.
	outsideSource func(pod netip.Addr) netip.Addr
}

// A planner creates the probes of an attempt.
type planner struct {
	planInputs
	options Options
	rules   rules.Ruleset
	probes  []probe
	// captures is set if the rules capture a connection or DNS query of the application.
	captures bool
}

// plan returns the probes for the desired rules, and reports whether these rules capture traffic of
// the application. The options contain the parameters from which the rules were compiled.
func plan(o Options, desired rules.Ruleset, in planInputs) (probes []probe, captures bool) {
	p := &planner{planInputs: in, options: o, rules: desired}
	for _, f := range p.families() {
		if o.Ambient == nil {
			p.planSelfCalls(f)
		} else {
			p.planZtunnelCalls(f)
		}
		p.planInbound(f)
		p.planOutbound(f)
		p.planDNS(f)
		p.planMarkedPackets(f)
	}
	return p.probes, p.captures
}

// families returns the families to test: the captured families. In ambient mode it omits a family
// in which the pod has no address.
func (p *planner) families() (families []rules.Family) {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		switch {
		case f == rules.IPv6 && !p.options.Redirect.IPv6:
		case p.options.Ambient != nil && len(p.options.PodIPs) > 0 && len(p.podIPs(f)) == 0:
		default:
			families = append(families, f)
		}
	}
	return families
}

// add adds the probe, with the trace of its packet and the expected outcome. It skips a probe that
// this process cannot send or receive.
func (p *planner) add(t probe) {
	t.packet.State, t.packet.Flags = rules.New, 0
	if t.packet.Protocol == rules.TCP {
		t.packet.Flags = rules.SYN
	}
	t.packet.NoListener = p.options.Redirect.Mode == rules.ModeTProxy && !p.mayUseTransparent &&
		!p.running
	t.trace = diff.Explain(&p.rules, t.packet)
	t.Packet = t.packet.String()
	if t.Expected == "" {
		t.Expected = t.expectation()
	}
	t.Proves = t.trace.Outcome.Captured() || p.needsTransparent(t) || t.packet.Mark != 0
	owner := t.packet.Owner
	switch {
	case t.Status != "":
	case owner != nil && *owner != p.self && !p.mayRunAs(*owner):
		t.skip(fmt.Sprintf("it must come from uid %d gid %d; this process has uid %d gid %d, and needs"+
			" CAP_SETUID and CAP_SETGID to change them",
			owner.UID, owner.GID, p.self.UID, p.self.GID), runOnNode)
	case t.packet.NoListener && p.needsTransparent(t):
		t.skip("a transparent listener needs CAP_NET_ADMIN or CAP_NET_RAW", runOnNode)
	}
	p.probes = append(p.probes, t)
}

// runOnNode is the remedy for checks that are not possible without privileges.
const runOnNode = "run it as root on the pod's node, with --pid"

// skip sets the status [NotChecked], so that the probe is not sent.
func (t *probe) skip(reason, next string) {
	t.Status, t.Reason, t.Next = NotChecked, reason, next
}

// needsTransparent reports whether only a transparent listener can receive the packet.
func (p *planner) needsTransparent(t probe) bool {
	t.packet.NoListener = false
	return diff.Explain(&p.rules, t.packet).Outcome.TProxy != 0
}

// expectation describes the expected outcome of the probe.
func (t *probe) expectation() string {
	outcome, to := t.trace.Outcome, t.packet.Destination
	switch {
	case outcome.Dropped:
		return "dropped"
	case outcome.TProxy != 0:
		return fmt.Sprintf(
			"taken by the proxy's transparent listener on port %d, as a connection to %s",
			outcome.TProxy, to)
	case outcome.Redirect != 0 && t.packet.Protocol == rules.UDP && t.agent != nil:
		return fmt.Sprintf("redirected to port %d, and answered with the source address %s",
			outcome.Redirect, to)
	case outcome.Redirect != 0 && t.packet.Protocol == rules.UDP:
		return fmt.Sprintf("redirected to port %d", outcome.Redirect)
	case outcome.Redirect != 0:
		return fmt.Sprintf("redirected to port %d, with %s as the original destination",
			outcome.Redirect, to)
	}
	return fmt.Sprintf("arrives at %s itself, not captured", to)
}

// port returns the port at which the probe must arrive.
func (t *probe) port() uint16 {
	switch outcome := t.trace.Outcome; {
	case outcome.Redirect != 0:
		return outcome.Redirect
	case outcome.TProxy != 0:
		return outcome.TProxy
	}
	return t.packet.Destination.Port()
}

// proxyOwner returns an owner of the proxy: the owner of this process if its user is in the first
// range of the proxy's users, or else the first user of that range. Istio treats a connection of
// the proxy to its own pod as inbound only if its user is in that range. In ambient mode owners
// have no effect.
func (p *planner) proxyOwner() rules.Owner {
	r := &p.options.Redirect
	if p.options.Ambient != nil || r.ProxyUIDs[0].Contains(p.self.UID) {
		return p.self
	}
	return rules.Owner{UID: r.ProxyUIDs[0].First, GID: r.ProxyGIDs[0].First}
}

// tproxyOwner returns the owner of the proxy in TPROXY mode. The injector runs the proxy as root
// with the proxy's group. If this process has a group of the proxy, and its user is not a user of
// the proxy, the result is the owner of this process.
func (p *planner) tproxyOwner() rules.Owner {
	r := &p.options.Redirect
	if rules.Contains(rules.Normalize(r.ProxyGIDs), p.self.GID) &&
		!rules.Contains(rules.Normalize(r.ProxyUIDs), p.self.UID) {
		return p.self
	}
	return rules.Owner{UID: 0, GID: r.ProxyGIDs[0].First}
}

// applications returns owners other than the proxy's. The owner of this process is the first,
// unless it is an owner of the proxy.
func (p *planner) applications() []rules.Owner {
	r := &p.options.Redirect
	if p.options.Ambient != nil {
		return []rules.Owner{p.self}
	}
	gids := r.ProxyGIDs
	if r.OwnerGroups.All {
		gids = slices.Concat(gids, r.OwnerGroupsExclude)
	}
	other := rules.Owner{UID: firstOutside(r.ProxyUIDs), GID: firstOutside(gids)}
	if !r.OwnerGroups.All {
		for _, g := range r.OwnerGroups.IDs {
			if !rules.Contains(rules.Normalize(r.ProxyGIDs), g.First) {
				other.GID = g.First
				break
			}
		}
	}
	owners := []rules.Owner{other}
	if !rules.Contains(rules.Normalize(r.ProxyUIDs), p.self.UID) &&
		!rules.Contains(rules.Normalize(r.ProxyGIDs), p.self.GID) {
		owners = []rules.Owner{p.self, other}
	}
	return owners
}

// firstOutside returns the lowest ID, 1000 or higher, that is in none of the ranges. If there is no
// such ID, it returns the highest ID below 1000 that is in none of the ranges, or else 1000. The
// maximum uint32 is not an ID.
func firstOutside(ranges []rules.IDRange) uint32 {
	const first = 1000
	excluded := rules.Normalize(ranges)
	for id := uint32(first); id < math.MaxUint32; id++ {
		i := slices.IndexFunc(excluded, func(r rules.IDRange) bool {
			return r.First <= id && id <= r.Last
		})
		if i < 0 {
			return id
		}
		if id = excluded[i].Last; id == math.MaxUint32 {
			break
		}
	}
	for below := uint32(first); below > 0; below-- {
		if !rules.Contains(excluded, below-1) {
			return below - 1
		}
	}
	return first
}

// podIPs returns the pod's addresses of the family.
func (p *planner) podIPs(f rules.Family) []netip.Addr {
	var found []netip.Addr
	for _, a := range p.options.PodIPs {
		if rules.FamilyOf(a) == f && !a.IsUnspecified() {
			found = append(found, a)
		}
	}
	return found
}

func familyName(f rules.Family) string { return fmt.Sprintf("IPv%d", f) }
