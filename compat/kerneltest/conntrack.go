package kerneltest

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// Attributes and messages of linux/netfilter/nfnetlink_conntrack.h.
const (
	subsysConntrack = 1
	ctNew           = 0
	ctDelete        = 2

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaStatus     = 3
	ctaProtoInfo  = 4
	ctaTimeout    = 7
	ctaMark       = 8
	ctaNATDst     = 13
	ctaZone       = 18

	ctaTupleIP    = 1
	ctaTupleProto = 2
)

// openNetfilterSockets opens netlink sockets of the pod: conntrack creates and deletes conntrack
// entries, and log receives the log of the observer tables.
func (n *Network) openNetfilterSockets() error {
	return n.Pod.Do(func() (err error) {
		if n.conntrack, err = netlink.Dial(unix.NETLINK_NETFILTER, nil); err != nil {
			return err
		}
		n.log, err = netlink.Dial(unix.NETLINK_NETFILTER, nil)
		return err
	})
}

// execute sends a message to a subsystem of nfnetlink, and waits for the acknowledgment.
func execute(
	conn *netlink.Conn, messageType uint16, flags netlink.HeaderFlags, family uint8,
	resource uint16, attributes []byte,
) error {
	const version = 0
	nfnetlinkHeader := binary.BigEndian.AppendUint16([]byte{family, version}, resource)
	_, err := conn.Execute(netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(messageType),
			Flags: netlink.Request | netlink.Acknowledge | flags,
		},
		Data: append(nfnetlinkHeader, attributes...),
	})
	return err
}

// Flush deletes all conntrack entries.
func (n *Network) Flush() error {
	err := execute(n.conntrack, subsysConntrack<<8|ctDelete, 0, unix.AF_UNSPEC, 0, nil)
	if err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
	}
	return nil
}

// A tuple is one direction of a connection.
type tuple struct {
	protocol rules.Protocol
	from, to netip.AddrPort
}

func (t tuple) reverse() tuple { return tuple{t.protocol, t.to, t.from} }

// An entry is a conntrack entry to create.
type entry struct {
	original, reply tuple
	status          rules.Status
	mark            uint32
}

// Zones contains the conntrack zones in which the network creates each connection. The packets of a
// connection therefore have the same state in each zone to which a rule may assign them.
var Zones = []uint16{0, 1, 5, 65535}

// createConnection creates the connection in all zones.
func (n *Network) createConnection(e entry) error {
	for _, zone := range Zones {
		if err := n.createInZone(zone, e); err != nil {
			return fmt.Errorf("create connection %v in zone %d: %w", e, zone, err)
		}
	}
	return nil
}

func (n *Network) createInZone(zone uint16, e entry) error {
	const timeoutSeconds = 600 // longer than a trial
	encoder := netlink.NewAttributeEncoder()
	encoder.ByteOrder = binary.BigEndian
	encoder.Nested(ctaTupleOrig, e.original.encode)
	encoder.Nested(ctaTupleReply, e.reply.encode)
	encoder.Uint32(ctaStatus, uint32(e.status|rules.StatusConfirmed))
	encoder.Uint32(ctaTimeout, timeoutSeconds)
	encoder.Uint32(ctaMark, e.mark)
	// Translate the destination to the same address, so that packets of the connection do not
	// traverse NAT chains.
	encoder.Nested(ctaNATDst, func(nat *netlink.AttributeEncoder) error {
		const address4, address6 = 1, 4 // attributes
		if to := e.original.to.Addr(); to.Is4() {
			nat.Bytes(address4, to.AsSlice())
		} else {
			nat.Bytes(address6, to.AsSlice())
		}
		return nil
	})
	if zone != 0 {
		encoder.Uint16(ctaZone, zone)
	}
	if e.original.protocol == rules.TCP {
		encoder.Nested(ctaProtoInfo, func(info *netlink.AttributeEncoder) error {
			const (
				tcp, state, flagsOriginal, flagsReply = 1, 1, 4, 5 // attributes
				synSent, established                  = 1, 3       // states
				liberal                               = 8          // IP_CT_TCP_FLAG_BE_LIBERAL
			)
			tcpState := uint8(established)
			if e.status&rules.StatusSeenReply == 0 {
				tcpState = synSent
			}
			info.Nested(tcp, func(a *netlink.AttributeEncoder) error {
				a.Uint8(state, tcpState)
				// With this flag (value and mask), conntrack accepts any sequence number.
				a.Bytes(flagsOriginal, []byte{liberal, liberal})
				a.Bytes(flagsReply, []byte{liberal, liberal})
				return nil
			})
			return nil
		})
	}
	attributes, err := encoder.Encode()
	if err != nil {
		return err
	}
	family := uint8(unix.AF_INET)
	if e.original.from.Addr().Is6() {
		family = unix.AF_INET6
	}
	messageType := uint16(subsysConntrack<<8 | ctNew)
	return execute(n.conntrack, messageType, netlink.Create|netlink.Excl, family, 0, attributes)
}

func (t tuple) encode(a *netlink.AttributeEncoder) error {
	a.Nested(ctaTupleIP, func(ip *netlink.AttributeEncoder) error {
		const source4, destination4, source6, destination6 = 1, 2, 3, 4 // attributes
		from, to := uint16(source4), uint16(destination4)
		if t.from.Addr().Is6() {
			from, to = source6, destination6
		}
		ip.Bytes(from, t.from.Addr().AsSlice())
		ip.Bytes(to, t.to.Addr().AsSlice())
		return nil
	})
	a.Nested(ctaTupleProto, func(proto *netlink.AttributeEncoder) error {
		const number, source, destination = 1, 2, 3 // attributes
		proto.ByteOrder = binary.BigEndian
		proto.Uint8(number, uint8(t.protocol))
		proto.Uint16(source, t.from.Port())
		proto.Uint16(destination, t.to.Port())
		return nil
	})
	return nil
}
