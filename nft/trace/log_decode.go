package trace

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// Attributes of a logged packet (linux/netfilter/nfnetlink_log.h).
const (
	attrPacketHeader   = 1
	attrLoggedMark     = 2
	attrInDevice       = 4
	attrOutDevice      = 5
	attrPayload        = 9
	attrPrefix         = 10
	attrUID            = 11
	attrGID            = 14
	attrConnection     = 18 // a connection of conntrack, linux/netfilter/nfnetlink_conntrack.h
	attrConnectionInfo = 19 // enum ip_conntrack_info
)

// decodeLogged decodes a logged packet. It returns false if the prefix does not belong to a trace,
// for example because a rule with the target NFLOG logged the packet, or if the message is
// incomplete.
func decodeLogged(payload []byte) (Event, bool) {
	var e Event
	if len(payload) < nfgenmsgLength {
		return e, false
	}
	family, prefix := payload[0], ""
	d, err := netlink.NewAttributeDecoder(payload[nfgenmsgLength:])
	if err != nil {
		return e, false
	}
	d.ByteOrder = binary.BigEndian
	var packet []byte
	var owner rules.Owner
	ownerAttrs := 0       // number of decoded attributes attrUID and attrGID
	hook := rules.Ingress // until the packet header is read
	for d.Next() {
		switch d.Type() {
		case attrPacketHeader:
			if b := d.Bytes(); len(b) > 2 {
				hook = rules.Hook(b[2]) // struct nfulnl_msg_packet_hdr
			}
		case attrLoggedMark:
			e.Mark = d.Uint32()
		case attrInDevice:
			e.In = d.Uint32()
		case attrOutDevice:
			e.Out = d.Uint32()
		case attrPayload:
			packet = d.Bytes()
		case attrPrefix:
			prefix = d.String()
		case attrUID:
			owner.UID = d.Uint32()
			ownerAttrs++
		case attrGID:
			owner.GID = d.Uint32()
			ownerAttrs++
		case attrConnection:
			d.Nested(e.decodeConnection)
		case attrConnectionInfo:
			e.setConnectionState(d.Uint32())
		}
	}
	if d.Err() != nil || hook >= rules.Ingress || !e.setPosition(prefix) {
		return e, false
	}
	if ownerAttrs == 2 {
		e.Owner = &owner
	}
	e.Family, e.Hook = rules.IPv4, hook
	if family == unix.AF_INET6 {
		e.Family = rules.IPv6
	}
	network, transport := splitPacket(family, packet)
	e.Header = decodeHeader(uint32(family), network, transport)
	return e, e.Header != nil
}

// setPosition sets the table, the chain and the number from the prefix of a trace, such as
// "TRACE: nat:OUTPUT:rule:1 ". It returns false if it cannot decode the prefix.
func (e *Event) setPosition(prefix string) bool {
	words := strings.Split(strings.TrimSpace(prefix), ":")
	if len(words) != 5 || words[0] != "TRACE" {
		return false // for example because the name of the chain contains a colon
	}
	n, err := strconv.Atoi(words[4])
	if err != nil || n < 1 {
		return false
	}
	e.Table, e.Chain, e.Number = strings.TrimSpace(words[1]), words[2], n
	// words[3] does not distinguish the end of a chain: the kernel also writes "policy" or "return"
	// instead of "rule" for every rule without conditions whose target is ACCEPT, DROP or RETURN.
	e.Kind = Rule
	return true
}

// splitPacket returns the network header of a packet and the bytes after it. The network header
// contains IPv4 options, but no IPv6 extension headers.
func splitPacket(family uint8, packet []byte) (network, transport []byte) {
	length := 40 // of the IPv6 header
	if family == unix.AF_INET {
		if len(packet) == 0 {
			return nil, nil
		}
		length = 4 * int(packet[0]&0xf)
	}
	if len(packet) < length {
		return packet, nil
	}
	return packet[:length], packet[length:]
}

// setConnectionState sets the state and the direction. info is a number of enum ip_conntrack_info
// (linux/netfilter/nf_conntrack_common.h).
func (e *Event) setConnectionState(info uint32) {
	const related, isNew, establishedReply, relatedReply, untracked = 1, 2, 3, 4, 7
	e.HasState, e.Reply = true, info >= establishedReply && info < untracked
	switch info {
	case untracked:
		e.State = rules.Untracked
	case isNew:
		e.State = rules.New
	case related, relatedReply:
		e.State = rules.Related
	default:
		e.State = rules.Established
	}
}

// decodeConnection decodes the status and the original tuple of the connection.
func (e *Event) decodeConnection(d *netlink.AttributeDecoder) error {
	const tuple, status = 1, 3 // CTA_TUPLE_ORIG, CTA_STATUS
	d.ByteOrder = binary.BigEndian
	for d.Next() {
		switch d.Type() {
		case tuple:
			d.Nested(e.decodeTuple)
		case status:
			e.Confirmed = d.Uint32()&(statusConfirmed|statusTemplate) == statusConfirmed
		}
	}
	return nil
}

// decodeTuple decodes the destination in a tuple.
func (e *Event) decodeTuple(d *netlink.AttributeDecoder) error {
	const address, protocol = 1, 2 // CTA_TUPLE_IP, CTA_TUPLE_PROTO
	var to netip.Addr
	port := uint16(0)
	for d.Next() {
		group := d.Type()
		d.Nested(func(d *netlink.AttributeDecoder) error {
			d.ByteOrder = binary.BigEndian
			for d.Next() {
				switch {
				case group == address && (d.Type() == 2 || d.Type() == 4): // CTA_IP_V4_DST, V6_DST
					to, _ = netip.AddrFromSlice(d.Bytes())
				case group == protocol && d.Type() == 3: // CTA_PROTO_DST_PORT
					port = d.Uint16()
				}
			}
			return nil
		})
	}
	if to.IsValid() {
		e.Original = netip.AddrPortFrom(to, port)
	}
	return nil
}
