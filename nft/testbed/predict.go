package testbed

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Packet returns the first packet of the call at its first hook in the pod. source is the caller's
// address from [Answer.Source], or invalid if it is unknown. Packet applies the routes of the
// network and of the ruleset.
func (n *Network) Packet(rs *rules.Ruleset, c Call, source netip.AddrPort) rules.Packet {
	p := rules.Packet{
		Protocol: rules.TCP, Source: source, Destination: c.To, Flags: rules.SYN,
		NoListener: !n.listensTransparently(),
	}
	if c.Network == "udp" {
		p.Protocol, p.Flags = rules.UDP, 0
	}
	if !source.IsValid() {
		p.Source = n.predictSource(c)
	}
	switch c.From {
	case FromNeighbor:
		p.Hook, p.InInterface = rules.Prerouting, ethName
	case FromMachine:
		p.Hook, p.InInterface = rules.Prerouting, n.options.Interface
	default:
		p.Hook, p.OutInterface = rules.Output, n.outInterface(rs, c)
		p.Owner, p.Mark = &rules.Owner{UID: c.Owner.UID, GID: c.Owner.GID}, c.Mark
	}
	return p
}

// Predict returns the answer to the call according to the model of the rules, and the trace of the
// call's first packet. The answer has the outcome, the server and, except for datagrams, the
// original destination. source is as in Packet.
func (n *Network) Predict(
	rs *rules.Ruleset, c Call, source netip.AddrPort,
) (Answer, rules.Trace) {
	trace := diff.Explain(rs, n.Packet(rs, c, source))
	outcome := trace.Outcome
	port := c.To.Port()
	switch {
	case outcome.Dropped:
		return Answer{Outcome: Silent}, trace
	case outcome.Captured():
		// TPROXY selects the socket before NAT: the transparent listener receives the packet even
		// if a rule redirects it too.
		port = cmp.Or(outcome.TProxy, outcome.Redirect)
	case n.isMachineAddr(c.To.Addr()) && !n.isLocal(rs, c):
		return serverAnswer(Machine, c), trace
	case !n.isLocal(rs, c):
		if c.From == FromMachine && repliesDiverted(rs, trace.Passes[0].Packet) {
			return Answer{Outcome: Silent}, trace
		}
		return serverAnswer(Outside, c), trace
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proxy != nil {
		if name, ok := n.proxy.listenerOn(c.Network, port); ok {
			return serverAnswer(name, c), trace
		}
	}
	if n.application == nil || outcome.Captured() {
		return Answer{Outcome: Refused}, trace
	}
	return serverAnswer(Application, c), trace
}

// repliesDiverted reports whether a rule marks the replies to a forwarded packet, and a policy
// route delivers the marked replies to the pod instead of the caller. Istio's rule for established
// connections in TPROXY mode has this effect.
func repliesDiverted(rs *rules.Ruleset, p rules.Packet) bool {
	p.Source, p.Destination = p.Destination, p.Source
	p.InInterface, p.State = ethName, rules.Established
	if p.Protocol == rules.TCP {
		p.Flags = rules.SYN | rules.ACK
	}
	return hasLocalRoute(rs, p.Family(), diff.Explain(rs, p).Outcome.Mark)
}

// hasLocalRoute reports whether a policy route delivers packets with the mark locally.
func hasLocalRoute(rs *rules.Ruleset, f rules.Family, mark uint32) bool {
	return slices.ContainsFunc(rs.Routing.Policies, func(p rules.PolicyRoute) bool {
		m := p.Marked()
		return p.Family == f && mark&m.Mask == m.Value && mark != 0
	})
}

// Agrees reports whether the answer matches the prediction: the same outcome and, if the call was
// answered, the same server and original destination. A prediction without an original destination
// agrees with every original destination.
func (a Answer) Agrees(predicted Answer) bool {
	if a.Outcome != predicted.Outcome {
		return false
	}
	return a.Outcome != Answered || a.By == predicted.By && (!predicted.To.IsValid() ||
		a.To == predicted.To)
}

// serverAnswer returns the answer of a server to a call. The original destination of a datagram is
// unknown.
func serverAnswer(by Name, c Call) Answer {
	a := Answer{Hop: Hop{By: by, To: c.To}}
	if c.Network == "udp" {
		a.To = netip.AddrPort{}
	}
	return a
}

// listenerOn returns the name of the proxy's listener on the port, and whether there is one.
func (p *proxy) listenerOn(network string, port uint16) (Name, bool) {
	if network == "udp" && port != rules.DNSPort {
		return "", false
	}
	name, ok := p.names[port]
	return name, ok
}

// listensTransparently reports whether the pod has a proxy with a transparent inbound listener.
func (n *Network) listensTransparently() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.proxy != nil && n.proxy.options.Transparent
}

// outInterface returns the interface through which the pod sends the call.
func (n *Network) outInterface(rs *rules.Ruleset, c Call) string {
	switch {
	case n.isLocal(rs, c):
		return loName
	case n.isMachineAddr(c.To.Addr()):
		return n.options.Interface
	}
	return ethName
}

// isLocal reports whether the call is delivered locally in the pod, because the pod has the address
// or because of a policy route.
func (n *Network) isLocal(rs *rules.Ruleset, c Call) bool {
	if isPodAddr(c.To.Addr()) {
		return true
	}
	return c.From == FromPod && hasLocalRoute(rs, rules.FamilyOf(c.To.Addr()), c.Mark)
}

// predictSource returns the source address that the call specifies, or the address that the kernel
// chooses. An unspecified port is replaced by an arbitrary port.
func (n *Network) predictSource(c Call) netip.AddrPort {
	const anyPort = 40000
	port := cmp.Or(c.Local.Port(), anyPort)
	if a := c.Local.Addr(); a.IsValid() && !a.IsUnspecified() {
		return netip.AddrPortFrom(a, port)
	}
	v6 := c.To.Addr().Is6()
	choose := func(a4, a6 netip.Addr) netip.AddrPort {
		if v6 {
			a4 = a6
		}
		return netip.AddrPortFrom(a4, port)
	}
	to := c.To.Addr()
	switch {
	case c.From == FromNeighbor:
		return choose(NeighborIP4, NeighborIP6)
	case c.From == FromMachine:
		return choose(MachineIP4, MachineIP6)
	case to.IsLoopback():
		return choose(netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	case isPodAddr(to):
		return netip.AddrPortFrom(to, port)
	case n.isMachineAddr(to):
		return choose(InterfaceIP4, InterfaceIP6)
	}
	return choose(PodIP4, PodIP6)
}
