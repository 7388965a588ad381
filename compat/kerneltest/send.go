package kerneltest

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// send sends a packet, and creates the connection that its state requires.
func (n *Network) send(p *rules.Packet, token uint32) error {
	if err := n.CheckSendable(p); err != nil {
		return err
	}
	connection, mustExist := connectionOf(p)
	var reportedPacket []byte
	if p.State == rules.Related {
		// An ICMP error reports a packet of a connection of the error's receiver.
		n.reported++
		connection, reportedPacket = reportedConnection(p, n.reported)
	}
	if mustExist {
		if err := n.conntrack.create(connection); err != nil {
			return err
		}
	}
	packet := encode(p, token, reportedPacket)
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

// connectionOf returns the connection of the packet, and reports whether the connection must exist
// before the packet.
func connectionOf(p *rules.Packet) (connection entry, mustExist bool) {
	original := tuple{p.Protocol, p.Source, p.Destination}
	if p.Reply {
		original = original.reverse()
	}
	isNewOfKnown := p.State == rules.New && p.Status != 0
	return entry{original, original.reverse(), p.Status, p.ConntrackMark},
		p.State == rules.Established || p.State == rules.Related || isNewOfKnown
}

// reportedConnection returns the connection that the ICMP error p reports, and a packet of the
// connection from the receiver of the error to another host. The error has the opposite direction:
// if it is a reply, the packet is a request, and otherwise a reply. The number selects the port of
// the receiver, so that different errors report different connections.
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
