package kerneltest

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// send sends a packet, and creates the connection that its state requires.
func (n *Network) send(p *rules.Packet, token uint32) error {
	if err := n.Sendable(p); err != nil {
		return err
	}
	var inner []byte
	e, ok := connectionOf(p)
	if p.State == rules.Related {
		// The error refers to a packet of a connection of the receiver.
		n.connections++
		e, inner = reportedConnection(p, n.connections)
	}
	if ok {
		if err := n.conntrack.create(e); err != nil {
			return err
		}
	}
	packet := encode(p, token, inner)
	if p.Hook == rules.Prerouting {
		return n.devices[p.InInterface].writeFrame(packet, p.Mark, ordinaryFrame)
	}
	if p.Owner == nil {
		return n.devices["eth0"].writeFrame(packet, p.Mark, socketlessFrame)
	}
	if err := n.writeRaw(p, packet); err != nil {
		return fmt.Errorf("%w: %w", errUnsendable, err)
	}
	return nil
}

// connectionOf returns the connection of the packet, and reports whether it must exist before the
// packet.
func connectionOf(p *rules.Packet) (entry, bool) {
	own := tuple{p.Protocol, p.Source, p.Destination}
	if p.Reply {
		own = own.reverse()
	}
	return entry{own, own.reverse(), p.Status, p.ConntrackMark},
		p.State == rules.Established || p.State == rules.Related || p.State == rules.New &&
			p.Status != 0
}

// reportedConnection returns the connection that an ICMP error reports, and a packet of the
// connection from the receiver of the error to another host: a request if the error belongs to the
// reply direction, and otherwise a reply.
func reportedConnection(p *rules.Packet, number uint32) (entry, []byte) {
	to := netip.MustParseAddr("203.0.113.7")
	if p.Destination.Addr().Is6() {
		to = netip.MustParseAddr("2001:db8:113::7")
	}
	reported := rules.Packet{
		Protocol:    rules.UDP,
		Source:      netip.AddrPortFrom(p.Destination.Addr(), uint16(1024+number%60000)),
		Destination: netip.AddrPortFrom(to, 7),
	}
	original := tuple{rules.UDP, reported.Source, reported.Destination}
	if !p.Reply {
		original = original.reverse()
	}
	return entry{original, original.reverse(), p.Status, p.ConntrackMark}, encode(&reported, 0, nil)
}
