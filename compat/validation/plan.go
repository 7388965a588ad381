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
	Check // without what was found; its status is set if the probe cannot be done
	// packet is its first packet; source port 0 means any.
	packet rules.Packet
	trace  rules.Trace // of packet, by the parameters
	// hint is the remedy if the probe fails, or empty.
	hint string
	// outside marks a probe from the namespace of this process. If it does not arrive, a connection
	// to control, which is not captured, shows whether the network path is the cause.
	outside bool
	control netip.AddrPort
	// listenerExpected reports that a listener is at the destination.
	listenerExpected bool
	// transparent binds the socket to a source address that the pod does not have.
	transparent bool
	// agent, for a datagram, is the owner whose reply must arrive; nil if it is sufficient that the
	// datagram arrives.
	agent *rules.Owner
}

// planInputs are the inputs of a plan other than the parameters.
type planInputs struct {
	self rules.Owner
	can  func(rules.Owner) bool
	// route returns the source address and the device for a destination.
	route func(netip.Addr) (source netip.Addr, device string, err error)
	// transparent reports that transparent and marked sockets are permitted.
	transparent bool
	// running reports that a proxy is already listening.
	running bool
	// apart reports that this process is outside the namespace.
	apart bool
	// device returns the name of the interface with the address.
	device func(own netip.Addr) string
	// reach returns the address from which this process, outside the namespace, reaches the pod's
	// address directly; invalid if it does not.
	reach func(pod netip.Addr) netip.Addr
}

// planner creates a plan.
type planner struct {
	planInputs
	options Options
	rules   rules.Ruleset
	probes  []probe
	// captures reports that some connection or DNS query of the application is captured.
	captures bool
}

// plan returns the probes for the desired rules, which the parameters compile to, and reports
// whether the parameters capture traffic of the application.
func plan(o Options, desired rules.Ruleset, s planInputs) (probes []probe, captures bool) {
	p := &planner{planInputs: s, options: o, rules: desired}
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

// families returns the captured families. In ambient mode both may be captured in a pod that has
// addresses of one, whose connections are tested.
func (p *planner) families() (list []rules.Family) {
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		switch {
		case f == rules.IPv6 && !p.options.Redirect.IPv6:
		case p.options.Ambient != nil && len(p.options.PodIPs) > 0 && len(p.podIPs(f)) == 0:
		default:
			list = append(list, f)
		}
	}
	return list
}

// add explains the packet and adds the probe, with a status if its owner or the routing prevents
// it.
func (p *planner) add(t probe) {
	t.packet.State, t.packet.Flags = rules.New, 0
	if t.packet.Protocol == rules.TCP {
		t.packet.Flags = rules.SYN
	}
	t.packet.NoListener = p.options.Redirect.Mode == rules.ModeTProxy && !p.transparent &&
		!p.running
	t.trace = diff.Explain(&p.rules, t.packet)
	t.Packet = t.packet.String()
	if t.Expected == "" {
		t.Expected = t.expectation()
	}
	t.Proves = t.trace.Outcome.Captured() || p.asksForTransparent(t) || t.packet.Mark != 0
	owner := t.packet.Owner
	switch {
	case t.Status != "":
	case owner != nil && *owner != p.self && !p.can(*owner):
		t.skip(fmt.Sprintf("it is made by uid %d gid %d; this process has uid %d gid %d, and to become another takes CAP_SETUID and "+
			"CAP_SETGID", owner.UID, owner.GID, p.self.UID, p.self.GID), runOnNode)
	case t.packet.NoListener && p.asksForTransparent(t):
		t.skip("a transparent listener needs CAP_NET_ADMIN or CAP_NET_RAW", runOnNode)
	}
	p.probes = append(p.probes, t)
}

// runOnNode is the remedy if not all checks are possible.
const runOnNode = "run it as root on the pod's node, with --pid"

// skip marks the probe as skipped.
func (t *probe) skip(reason, next string) {
	t.Status, t.Reason, t.Next = NotChecked, reason, next
}

// asksForTransparent reports whether a transparent listener would receive the packet.
func (p *planner) asksForTransparent(t probe) bool {
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
		return fmt.Sprintf("redirected to port %d, and answered with the source address %s", outcome.Redirect,
			to)
	case outcome.Redirect != 0 && t.packet.Protocol == rules.UDP:
		return fmt.Sprintf("redirected to port %d", outcome.Redirect)
	case outcome.Redirect != 0:
		return fmt.Sprintf("redirected to port %d, with %s as the original destination",
			outcome.Redirect, to)
	}
	return fmt.Sprintf("arrives at %s itself, not captured", to)
}

// port returns the port where the probe is expected.
func (t *probe) port() uint16 {
	switch outcome := t.trace.Outcome; {
	case outcome.Redirect != 0:
		return outcome.Redirect
	case outcome.TProxy != 0:
		return outcome.TProxy
	}
	return t.packet.Destination.Port()
}

// proxy returns an owner of the proxy: the one of this process if possible. Istio treats only
// connections of the first user to its own pod as inbound.
//
// In ambient mode owners have no effect.
func (p *planner) proxy() rules.Owner {
	r := &p.options.Redirect
	if p.options.Ambient != nil || r.ProxyUIDs[0].Contains(p.self.UID) {
		return p.self
	}
	return rules.Owner{UID: r.ProxyUIDs[0].First, GID: r.ProxyGIDs[0].First}
}

// tproxyProxy returns the proxy's owner in TPROXY mode according to the injector: root with the
// proxy's group.
func (p *planner) tproxyProxy() rules.Owner {
	r := &p.options.Redirect
	if rules.Contains(rules.Normalize(r.ProxyGIDs), p.self.GID) &&
		!rules.Contains(rules.Normalize(r.ProxyUIDs), p.self.UID) {
		return p.self
	}
	return rules.Owner{UID: 0, GID: r.ProxyGIDs[0].First}
}

// applications returns owners other than the proxy's, the one of this process first if possible.
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

// firstOutside returns the first id from 1000 on that is in none of the ranges, or else the highest
// one below, or 1000 if there is none. The maximum number is not an id.
func firstOutside(ranges []rules.IDRange) uint32 {
	const first = 1000
	taken := rules.Normalize(ranges)
	for id := uint32(first); id < math.MaxUint32; id++ {
		i := slices.IndexFunc(taken, func(r rules.IDRange) bool {
			return r.First <= id && id <= r.Last
		})
		if i < 0 {
			return id
		}
		if id = taken[i].Last; id == math.MaxUint32 {
			break
		}
	}
	for below := uint32(first); below > 0; below-- {
		if !rules.Contains(taken, below-1) {
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
