package kerneltest

import (
	"net/netip"
	"slices"

	"github.com/sluice-mesh/sluice/rules"
)

// BoundaryPackets returns packets at the boundaries of the classes into which the rulesets divide
// packets. For each rule of each ruleset it returns a packet whose fields are at or next to an end
// of the ranges that the rule matches. The packet usually also matches the jumps that lead to the
// rule's chain. The packets can be sent one after the other.
func (g *Generator) BoundaryPackets(
	n *Network, count int, rulesets ...*rules.Ruleset,
) []rules.Packet {
	var targets []ruleRef
	for _, rs := range rulesets {
		for i := range rs.Tables {
			for j := range rs.Tables[i].Chains {
				c := &rs.Tables[i].Chains[j]
				for k := range c.Rules {
					targets = append(targets, ruleRef{&rs.Tables[i], c, &c.Rules[k]})
				}
			}
		}
	}
	if len(targets) == 0 {
		return nil
	}
	g.random.Shuffle(len(targets), func(i, j int) {
		targets[i], targets[j] = targets[j], targets[i]
	})
	var packets []rules.Packet
	used := usedPorts{}
	for try := 0; len(packets) < count && try < 20*count; try++ {
		p := g.packet()
		g.directTo(&p, targets[try%len(targets)])
		if n.Complete(&p); n.Sendable(&p) == nil && used.add(&p) {
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

// directTo changes the packet so that it may reach the rule, and has values at the boundaries of
// the rule's matches. It ignores one in six matches of the rule and of the jumps that lead to it.
func (g *Generator) directTo(p *rules.Packet, r ruleRef) {
	for range 8 {
		for _, m := range matchesOf(r.rule) {
			if !g.oneIn(6) {
				g.approach(p, m)
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

// setHook makes the packet a packet of the hook, unless the network could then not send it. For
// prerouting it leaves a quarter of the packets of the hook output unchanged: they traverse
// prerouting too if they leave by lo.
func (g *Generator) setHook(p *rules.Packet, h rules.Hook) {
	switch {
	case h == rules.Output && p.Hook != rules.Output:
		p.Hook, p.InInterface, p.InAddress, p.NoReversePath = rules.Output, "", netip.Addr{}, false
		p.Owner = &rules.Owner{UID: draw(g, packetIDs...), GID: draw(g, packetIDs...)}
	case h == rules.Prerouting && p.Hook != rules.Prerouting && !p.Source.Addr().IsLoopback() &&
		!p.Destination.Addr().IsLoopback() && p.Owner != nil && !g.oneIn(4):
		p.Hook, p.OutInterface, p.Owner, p.Bound = rules.Prerouting, "", nil, false
		p.InInterface = draw(g, interfaces...)
	}
}

// caller returns a rule that jumps to the chain of the given rule.
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

// matchesOf returns the matches of a rule, including matches after statements.
func matchesOf(r *rules.Rule) []rules.Match {
	matches := slices.Clone(r.Matches)
	for _, a := range r.Actions {
		if q, ok := a.(rules.Require); ok {
			matches = append(matches, q.Match)
		}
	}
	return matches
}

// approach sets the field that the match compares to a value at a boundary of the match.
func (g *Generator) approach(p *rules.Packet, match rules.Match) {
	switch m := match.(type) {
	case rules.MatchTuple:
		if len(m.Alternatives) > 0 {
			for _, part := range draw(g, m.Alternatives...) {
				g.approach(p, part)
			}
		}
	case rules.MatchInterface:
		g.approachInterface(p, m)
	case rules.MatchAddr:
		g.approachAddr(p, m)
	case rules.MatchProtocol:
		g.approachProtocol(p, draw(g, m.Protocols...))
	case rules.MatchPort:
		g.approachPort(p, m)
	case rules.MatchTCPFlags:
		g.approachProtocol(p, rules.TCP)
		if p.Protocol == rules.TCP && !p.State.HasConnection() ||
			p.State == rules.New && p.Status == 0 {
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
		other := uint32(1) << g.below(32)
		g.approachMark(p, m.Conntrack, draw(g, m.Value, m.Value, m.Value|^m.Mask, m.Value^other))
	case rules.MatchMarkRange:
		g.approachMark(p, m.Conntrack, neighbor(g, draw(g, m.Values...)))
	case rules.MatchICMP:
		if code := neighbor(g, draw(g, m.Values...)); p.ICMPType != 0 && p.State == rules.New {
			p.ICMPType, p.ICMPCode = uint8(code>>8), uint8(code)
			p.State = InitialState(p)
		}
	case rules.MatchState, rules.MatchStatus, rules.MatchDirection:
		if p.Owner != nil || p.Hook == rules.Prerouting {
			p.Flags, p.Status, p.ConntrackMark, p.Reply, p.State = 0, 0, 0, false, rules.New
			g.drawState(p)
		}
	}
}

// neighbor returns an end of a range, or a value next to an end.
func neighbor[T uint16 | uint32](g *Generator, r rules.Range[T]) T {
	return draw(g, r.First, r.Last, r.First, r.Last, r.First-1, r.Last+1)
}

// approachInterface sets the interface of the packet.
func (g *Generator) approachInterface(p *rules.Packet, m rules.MatchInterface) {
	name := draw(g, m.Names...)
	for _, known := range interfaces {
		if differsFromMatch := g.oneIn(4); name.Contains(known) != differsFromMatch {
			if p.Hook == rules.Prerouting && !m.Out {
				p.InInterface = known
			} else if p.Hook == rules.Output && m.Out && p.Owner != nil &&
				p.Destination.Addr().Is4() && g.oneIn(3) {
				p.Bound, p.OutInterface = true, known
			}
			return
		}
	}
}

// approachAddr sets an address of the packet. It does nothing if the match is for the other family,
// or if the packet cannot have the address.
func (g *Generator) approachAddr(p *rules.Packet, m rules.MatchAddr) {
	r := draw(g, m.Ranges...)
	a := draw(g, r.From(), r.To(), r.From(), r.To(), r.From().Prev(), r.To().Next())
	if !a.IsValid() || a.Is4() != p.Destination.Addr().Is4() || a.IsUnspecified() {
		return
	}
	other := p.Source.Addr()
	if m.Side == rules.Source {
		other = p.Destination.Addr()
	}
	if a == other || a.IsMulticast() || addrType(a) == rules.Broadcast ||
		addrType(a) == rules.AddrTypeUnknown ||
		p.Hook == rules.Prerouting && a.IsLoopback() {
		return
	}
	if m.Side == rules.Source {
		p.Source = netip.AddrPortFrom(a, p.Source.Port())
	} else {
		p.Destination = netip.AddrPortFrom(a, p.Destination.Port())
	}
}

// approachProtocol makes the packet a TCP or UDP packet. It does nothing unless the packet begins a
// connection.
func (g *Generator) approachProtocol(p *rules.Packet, protocol rules.Protocol) {
	if protocol != rules.TCP && protocol != rules.UDP || p.Protocol == protocol ||
		p.State != rules.New || p.Status != 0 {
		return
	}
	if p.Source.Port() == 0 {
		p.Source = netip.AddrPortFrom(p.Source.Addr(), uint16(20000+g.below(10000)))
		p.Destination = netip.AddrPortFrom(p.Destination.Addr(), draw(g, packetPorts...))
	}
	p.Protocol, p.ICMPType, p.ICMPCode, p.Flags = protocol, 0, 0, 0
	if protocol == rules.TCP {
		p.Flags = rules.SYN
	}
}

// approachPort sets a port of the packet.
func (g *Generator) approachPort(p *rules.Packet, m rules.MatchPort) {
	if p.Protocol != rules.TCP && p.Protocol != rules.UDP {
		g.approachProtocol(p, draw(g, rules.TCP, rules.UDP))
	}
	port := neighbor(g, draw(g, m.Ports...))
	switch {
	case port == 0 || p.Source.Port() == 0:
	case m.Side == rules.Source:
		p.Source = netip.AddrPortFrom(p.Source.Addr(), port)
	default:
		p.Destination = netip.AddrPortFrom(p.Destination.Addr(), port)
	}
}

// approachMark sets the mark of the packet or, if conntrack is set, the mark of a connection that
// exists before the packet.
func (g *Generator) approachMark(p *rules.Packet, conntrack bool, mark uint32) {
	switch {
	case !conntrack:
		p.Mark = mark
	case p.Status != 0:
		p.ConntrackMark = mark
	}
}
