package testbed

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
	"github.com/sluice-mesh/sluice/rules/diff"
)

// Packet returns the first packet of the call as it enters the pod's rules. The caller's own
// address is own, as far as it is known (see [Answer]); routing is that of the bed with the
// ruleset's.
func (b *Bed) Packet(rs *rules.Ruleset, c Call, own netip.AddrPort) rules.Packet {
	p := rules.Packet{Protocol: rules.TCP, Source: own, Destination: c.To, Flags: rules.SYN, NoListener: !b.listensTransparently()}
	if c.Network == "udp" {
		p.Protocol, p.Flags = rules.UDP, 0
	}
	if !own.IsValid() {
		p.Source = b.source(c)
	}
	switch c.From {
	case FromNeighbour:
		p.Hook, p.InInterface = rules.Prerouting, ethName
	case FromMachine:
		p.Hook, p.InInterface = rules.Prerouting, b.options.Interface
	default:
		p.Hook, p.OutInterface = rules.Output, b.device(rs, c)
		p.Owner, p.Mark = &rules.Owner{UID: c.Owner.UID, GID: c.Owner.GID}, c.Mark
	}
	return p
}

// Predict returns what the rules' model says of the call: who answers, and for which destination.
// Only these fields of the answer are set, and of a datagram's only who answers.
func (b *Bed) Predict(rs *rules.Ruleset, c Call, own netip.AddrPort) (Answer, rules.Trace) {
	trace := diff.Explain(rs, b.Packet(rs, c, own))
	fate := trace.Fate
	port := c.To.Port()
	switch {
	case fate.Dropped:
		return Answer{Outcome: Silent}, trace
	case fate.Captured():
		// The transparent listener has the packet even if it is translated as well: its socket is
		// chosen before.
		port = cmp.Or(fate.TProxy, fate.Redirect)
	case b.isMachines(c.To.Addr()) && !b.local(rs, c):
		return answered(Machine, c), trace
	case !b.local(rs, c):
		if c.From == FromMachine && answersDiverted(rs, trace.Passes[0].Packet) {
			return Answer{Outcome: Silent}, trace
		}
		return answered(Outside, c), trace
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proxy != nil {
		if name, ok := b.proxy.serves(c.Network, port); ok {
			return answered(name, c), trace
		}
	}
	if b.application == nil || fate.Captured() {
		return Answer{Outcome: Refused}, trace
	}
	return answered(Application, c), trace
}

// answersDiverted reports whether the answers to a packet that the pod forwards get a mark that
// makes them the pod's own, so that they never arrive. Istio's rule for established connections in
// TPROXY mode does that.
func answersDiverted(rs *rules.Ruleset, p rules.Packet) bool {
	p.Source, p.Destination = p.Destination, p.Source
	p.InInterface, p.State = ethName, rules.Established
	if p.Protocol == rules.TCP {
		p.Flags = rules.SYN | rules.ACK
	}
	return madeLocal(rs, p.Family(), diff.Explain(rs, p).Fate.Mark)
}

// madeLocal reports whether a policy route makes packets with the mark the pod's own.
func madeLocal(rs *rules.Ruleset, f rules.Family, mark uint32) bool {
	return slices.ContainsFunc(rs.Routing.Policies, func(p rules.PolicyRoute) bool {
		return p.Family == f && p.Mark == mark && mark != 0
	})
}

// Agrees reports whether the answer is as predicted: the same server, asked for the same
// destination.
func (a Answer) Agrees(predicted Answer) bool {
	if a.Outcome != predicted.Outcome {
		return false
	}
	return a.Outcome != Answered || a.By == predicted.By && (!predicted.To.IsValid() || a.To == predicted.To)
}

func answered(by Name, c Call) Answer {
	a := Answer{Hop: Hop{By: by, To: c.To}}
	if c.Network == "udp" {
		a.To = netip.AddrPort{}
	}
	return a
}

// serves tells who listens on the proxy's port.
func (p *proxy) serves(network string, port uint16) (Name, bool) {
	if network == "udp" && port != rules.DNSPort {
		return "", false
	}
	name, ok := p.names[port]
	return name, ok
}

func (b *Bed) listensTransparently() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.proxy != nil && b.proxy.options.Transparent
}

// device is what the pod sends the call by.
func (b *Bed) device(rs *rules.Ruleset, c Call) string {
	switch {
	case b.local(rs, c):
		return loName
	case b.isMachines(c.To.Addr()):
		return b.options.Interface
	}
	return ethName
}

// local reports whether the pod receives the call itself: the address is its own, or a policy route
// makes it so.
func (b *Bed) local(rs *rules.Ruleset, c Call) bool {
	if isPods(c.To.Addr()) {
		return true
	}
	return c.From == FromPod && madeLocal(rs, rules.FamilyOf(c.To.Addr()), c.Mark)
}

// source is the address that the kernel chooses where the call gives none, with some port.
func (b *Bed) source(c Call) netip.AddrPort {
	const somePort = 40000
	port := c.Local.Port()
	if port == 0 {
		port = somePort
	}
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
	case c.From == FromNeighbour:
		return choose(NeighbourIP4, NeighbourIP6)
	case c.From == FromMachine:
		return choose(MachineIP4, MachineIP6)
	case to.IsLoopback():
		return choose(netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
	case isPods(to):
		return netip.AddrPortFrom(to, port)
	case b.isMachines(to):
		return choose(InterfaceIP4, InterfaceIP6)
	}
	return choose(PodIP4, PodIP6)
}
