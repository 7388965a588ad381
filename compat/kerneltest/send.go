package kerneltest

import (
	"fmt"
	"net/netip"

	"github.com/sluice-mesh/sluice/rules"
)

// send creates the connection that the state of the packet requires, and sends the packet with the
// token.
func (n *Network) send(p *rules.Packet, token uint32) error {
	if err := n.CheckSendable(p); err != nil {
		return err
	}
	connection, mustExist := connectionOf(p)
	var innerPacket []byte
	if p.State == rules.Related {
		// An ICMP error contains a packet that the receiver of the error has sent.
		n.innerCount++
		connection, innerPacket = innerConnection(p, n.innerCount)
	}
	if mustExist {
		if err := n.createConnection(connection); err != nil {
			return err
		}
	}
	packet := encode(p, token, innerPacket)
	if p.Hook == rules.Prerouting {
		return n.devices[p.InInterface].writeFrame(packet, p.Mark, ordinaryFrame)
	}
	if p.Owner == nil {
		// The packet arrives, and a rule of the observer sends a copy of it; see observerTables.
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
	isNewWithEntry := p.State == rules.New && p.Status != 0 // such as a retransmitted SYN
	return entry{original, original.reverse(), p.Status, p.ConntrackMark},
		p.State == rules.Established || p.State == rules.Related || isNewWithEntry
}

// innerConnection returns the connection that the ICMP error p is about, and the packet of this
// connection that p contains. This packet goes from the destination of p to another host, in the
// direction opposite to p. The number selects the source port of the packet, so that different
// errors are about different connections.
func innerConnection(p *rules.Packet, number uint32) (entry, []byte) {
	to := netip.MustParseAddr("203.0.113.7")
	if p.Destination.Addr().Is6() {
		to = netip.MustParseAddr("2001:db8:113::7")
	}
	inner := rules.Packet{
		Protocol:    rules.UDP,
		Source:      netip.AddrPortFrom(p.Destination.Addr(), uint16(1024+number%60000)),
		Destination: netip.AddrPortFrom(to, 7),
	}
	original := tuple{rules.UDP, inner.Source, inner.Destination}
	if !p.Reply {
		original = original.reverse()
	}
	return entry{original, original.reverse(), p.Status, p.ConntrackMark}, encode(&inner, 0, nil)
}
