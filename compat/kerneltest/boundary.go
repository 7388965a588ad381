package kerneltest

import (
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// BoundaryPackets returns at most count packets at the boundaries of the classes into which the
// rulesets divide packets. It draws a packet for one rule after the other, in a random order of the
// rules. The fields of the packet are at or next to an end of the ranges that the rule matches. The
// packet usually also matches the jumps that lead to the rule's chain. No packet affects the
// connection of another packet. There may be no packet for some rules, because the network cannot
// send every packet.
func (g *Generator) BoundaryPackets(
	n *Network, count int, rulesets ...*rules.Ruleset,
) []rules.Packet {
	var refs []ruleRef
	for _, rs := range rulesets {
		for t, c := range rs.AllChains() {
			for i := range c.Rules {
				refs = append(refs, ruleRef{t, c, &c.Rules[i]})
			}
		}
	}
	if len(refs) == 0 {
		return nil
	}
	g.random.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	var packets []rules.Packet
	used := usedPorts{}
	// The network cannot send many of the packets, and others would affect an earlier connection.
	const attemptsPerPacket = 20
	for try := 0; len(packets) < count && try < attemptsPerPacket*count; try++ {
		p := g.packet()
		g.directTo(&p, refs[try%len(refs)])
		if n.Complete(&p); n.CheckSendable(&p) == nil && used.add(&p) {
			packets = append(packets, p)
		}
	}
	return packets
}

// A ruleRef is a rule with its table and chain.
type ruleRef struct {
	table *rules.Table
	chain *rules.Chain
	rule  *rules.Rule
}

// directTo changes the packet so that it may reach the rule, and sets its fields to boundaries of
// the rule's matches. It does the same for the rules that jump to the rule's chain, back to a base
// chain. It ignores each match of these rules with probability 1/6, so that some packets fail a
// match.
func (g *Generator) directTo(p *rules.Packet, r ruleRef) {
	const maxNested = 8 // more jumps than a Generator nests
	for range maxNested {
		for m := range r.rule.AllMatches() {
			if !g.oneIn(6) {
				g.setField(p, m)
			}
		}
		if r.chain.Base != nil {
			g.setHook(p, r.chain.Base.Hook)
			return
		}
		caller, ok := g.caller(r)
		if !ok {
			return
		}
		r = caller
	}
}

// setHook makes the packet enter the pod's rules at the hook, if the network can send such a
// packet. If the hook is prerouting, at least a quarter of the packets that enter at output are
// unchanged, because packets that leave by lo traverse prerouting too.
func (g *Generator) setHook(p *rules.Packet, h rules.Hook) {
	switch {
	case h == rules.Output && p.Hook != rules.Output:
		p.Hook, p.InInterface, p.InAddress, p.NoReversePath = rules.Output, "", netip.Addr{}, false
		p.Owner = &rules.Owner{UID: draw(g, packetIDs...), GID: draw(g, packetIDs...)}
	case h == rules.Prerouting && p.Hook != rules.Prerouting && !p.Source.Addr().IsLoopback() &&
		!p.Destination.Addr().IsLoopback() && p.Owner != nil && !g.oneIn(4):
		p.Hook, p.OutInterface, p.Owner, p.Bound = rules.Prerouting, "", nil, false
		p.TransparentSender = false
		p.InInterface = draw(g, interfaces...)
	}
}

// caller draws a rule that jumps to the chain of the given rule. It returns false if there is none.
func (g *Generator) caller(r ruleRef) (ruleRef, bool) {
	var callers []ruleRef
	for i := range r.table.Chains {
		c := &r.table.Chains[i]
		for j := range c.Rules {
			for _, a := range c.Rules[j].Actions {
				if jump, ok := a.(rules.Jump); ok && jump.Chain == r.chain.Name {
					callers = append(callers, ruleRef{r.table, c, &c.Rules[j]})
				}
			}
		}
	}
	if len(callers) == 0 {
		return ruleRef{}, false
	}
	return draw(g, callers...), true
}

// setField sets the field that the match compares to a value at a boundary of the match, if the
// network can send such a packet.
func (g *Generator) setField(p *rules.Packet, match rules.Match) {
	switch m := match.(type) {
	case rules.MatchTuple:
		if len(m.Alternatives) > 0 {
			for _, fieldMatch := range draw(g, m.Alternatives...) {
				g.setField(p, fieldMatch)
			}
		}
	case rules.MatchInterface:
		g.setInterface(p, m)
	case rules.MatchAddr:
		g.setAddr(p, m)
	case rules.MatchProtocol:
		g.setProtocol(p, draw(g, m.Protocols...))
	case rules.MatchPort:
		g.setPort(p, m)
	case rules.MatchTCPFlags:
		g.setProtocol(p, rules.TCP)
		// Other TCP packets keep their flags, which their state restricts.
		if p.Protocol == rules.TCP && (beginsConnection(p) || !p.State.HasConnection()) {
			p.Flags = draw(g, m.Value&m.Mask|p.Flags&^m.Mask, rules.SYN, rules.ACK,
				rules.SYN|rules.ACK, rules.RST)
			p.State = InitialState(p)
		}
	case rules.MatchOwner:
		if p.Owner != nil && len(m.IDs) > 0 {
			id := neighbor(g, draw(g, m.IDs...))
			if m.Group {
				p.Owner = &rules.Owner{UID: p.Owner.UID, GID: id}
			} else {
				p.Owner = &rules.Owner{UID: id, GID: p.Owner.GID}
			}
		}
	case rules.MatchMark:
		bit := uint32(1) << g.below(32)
		g.setMark(p, m.Conntrack, draw(g, m.Value, m.Value, m.Value|^m.Mask, m.Value^bit))
	case rules.MatchMarkRange:
		g.setMark(p, m.Conntrack, neighbor(g, draw(g, m.Values...)))
	case rules.MatchICMP:
		// A match contains the type and the code in one number.
		typeAndCode := neighbor(g, draw(g, m.Values...))
		if isRequest := p.ICMPType != 0 && p.State == rules.New; isRequest {
			p.ICMPType, p.ICMPCode = uint8(typeAndCode>>8), uint8(typeAndCode)
			p.State = InitialState(p)
		}
	case rules.MatchState, rules.MatchStatus, rules.MatchDirection:
		// A packet that the pod sends without a socket is always untracked.
		if sentWithoutSocket := p.Hook == rules.Output && p.Owner == nil; !sentWithoutSocket {
			p.Flags, p.Status, p.ConntrackMark, p.Reply, p.State = 0, 0, 0, false, rules.New
			g.drawState(p)
		}
	}
}

// beginsConnection reports whether the packet is the first packet of its connection.
func beginsConnection(p *rules.Packet) bool { return p.State == rules.New && p.Status == 0 }

// neighbor draws an end of a range, or a value next to an end.
func neighbor[T uint16 | uint32](g *Generator, r rules.Range[T]) T {
	return draw(g, r.First, r.Last, r.First, r.Last, r.First-1, r.Last+1)
}

// setInterface sets the interface of the packet to an interface that the match names or, less
// often, to another interface. It ignores the negation of the match. It does nothing if the packet
// cannot have this interface, and binds an outgoing packet to it only with probability 1/3.
func (g *Generator) setInterface(p *rules.Packet, m rules.MatchInterface) {
	pattern := draw(g, m.Names...)
	for _, device := range interfaces {
		isNamed := !g.oneIn(4)
		if pattern.Contains(device) != isNamed {
			continue
		}
		switch {
		case p.Hook == rules.Prerouting && !m.Out:
			p.InInterface = device
		case p.Hook == rules.Output && m.Out && p.Owner != nil && p.Destination.Addr().Is4() &&
			g.oneIn(3):
			p.Bound, p.OutInterface = true, device
		}
		return
	}
}

// setAddr sets the source or the destination of the packet. It does nothing if the match is for the
// other family, or if the network cannot send such a packet.
func (g *Generator) setAddr(p *rules.Packet, m rules.MatchAddr) {
	r := draw(g, m.Ranges...)
	a := draw(g, r.From(), r.To(), r.From(), r.To(), r.From().Prev(), r.To().Next())
	if !a.IsValid() || a.Is4() != p.Destination.Addr().Is4() || a.IsUnspecified() {
		return
	}
	peer := p.Source.Addr()
	if m.Side == rules.Source {
		peer = p.Destination.Addr()
	}
	addressType := addrType(a)
	switch {
	case a == peer:
		return
	case addressType != rules.Unicast && addressType != rules.Local:
		return
	case p.Hook == rules.Prerouting && a.IsLoopback():
		return // a packet from another host cannot have a loopback address
	}
	if m.Side == rules.Source {
		p.Source = netip.AddrPortFrom(a, p.Source.Port())
	} else {
		p.Destination = netip.AddrPortFrom(a, p.Destination.Port())
	}
}

// setProtocol makes a packet that begins a connection a TCP or UDP packet. It does nothing for
// other packets and protocols.
func (g *Generator) setProtocol(p *rules.Packet, protocol rules.Protocol) {
	if p.Protocol == protocol || !beginsConnection(p) {
		return
	}
	if protocol != rules.TCP && protocol != rules.UDP {
		return
	}
	if hadNoPorts := p.Source.Port() == 0; hadNoPorts {
		p.Source = netip.AddrPortFrom(p.Source.Addr(), uint16(20000+g.below(10000)))
		p.Destination = netip.AddrPortFrom(p.Destination.Addr(), draw(g, packetPorts...))
	}
	p.Protocol, p.ICMPType, p.ICMPCode, p.Flags = protocol, 0, 0, 0
	if protocol == rules.TCP {
		p.Flags = rules.SYN
	}
}

// setPort sets a port of the packet. A packet without ports that begins a connection becomes a TCP
// or UDP packet. Other packets without ports remain unchanged.
func (g *Generator) setPort(p *rules.Packet, m rules.MatchPort) {
	if p.Protocol != rules.TCP && p.Protocol != rules.UDP {
		g.setProtocol(p, draw(g, rules.TCP, rules.UDP))
	}
	port := neighbor(g, draw(g, m.Ports...))
	switch {
	case port == 0 || p.Source.Port() == 0: // the packet cannot have this port, or has no ports
	case m.Side == rules.Source:
		p.Source = netip.AddrPortFrom(p.Source.Addr(), port)
	default:
		p.Destination = netip.AddrPortFrom(p.Destination.Addr(), port)
	}
}

// setMark sets the mark of the packet. If conntrack is set, it instead sets the mark of the
// packet's connection, provided that the connection exists before the packet.
func (g *Generator) setMark(p *rules.Packet, conntrack bool, mark uint32) {
	connectionExists := p.Status != 0
	switch {
	case !conntrack:
		p.Mark = mark
	case connectionExists:
		p.ConntrackMark = mark
	}
}
