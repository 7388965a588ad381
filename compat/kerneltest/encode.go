package kerneltest

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// Each packet ends with magic and a token, of four bytes each. The notes of the observer precede
// them, and begin notesAt bytes after the beginning of the transport header.
const (
	magic     = 0x51ce0a5d
	notesAt   = 80
	notesSize = 36
	// noStatus is the initial value of the status. No connection has a status with all bits set.
	// The initial value of the other notes is zero.
	noStatus = 0xffffffff
)

// A note is a conntrack field that the observer writes into a packet, because nfnetlink_log does
// not report it on all kernels.
type note struct {
	key      expr.CtKey
	at, size uint32
}

// notes contains the fields, and their positions and sizes in bytes. The last two fields are the
// original destination of the connection: the destination of its first packet when conntrack saw
// it.
var notes = []note{
	{expr.CtKeyMARK, 0, 4},
	{expr.CtKeySTATUS, 4, 4},
	{expr.CtKeySTATE, 8, 4},
	{expr.CtKeyZONE, 12, 2},
	{expr.CtKeyDIRECTION, 14, 1},
	{expr.CtKeyDST, 16, 16},
	{expr.CtKeyPROTODST, 32, 2},
}

// initialNotes returns the bytes of the notes before the observer writes to them.
func initialNotes() []byte {
	b := make([]byte, notesSize)
	binary.NativeEndian.PutUint32(b[4:], noStatus)
	return b
}

// A Connection is the conntrack entry of a packet.
type Connection struct {
	Mark   uint32
	Zone   uint16
	Status rules.Status
	State  rules.State
	Reply  bool
	// Original is the destination of the connection's first packet when conntrack saw it.
	Original netip.AddrPort
}

// The bits of nft's "ct state".
const (
	bitInvalid     = 1
	bitEstablished = 2
	bitRelated     = 4
	bitNew         = 8
	bitUntracked   = 64
)

// readNotes returns the state and the connection that the notes of a packet contain. The connection
// is nil if the packet has none.
func readNotes(b []byte, ipv4 bool) (rules.State, *Connection) {
	state := rules.Invalid
	switch binary.NativeEndian.Uint32(b[8:]) {
	case bitUntracked:
		state = rules.Untracked
	case bitNew:
		state = rules.New
	case bitEstablished:
		state = rules.Established
	case bitRelated:
		state = rules.Related
	}
	status := binary.NativeEndian.Uint32(b[4:])
	if status == noStatus {
		return state, nil
	}
	original := netip.AddrFrom16([16]byte(b[16:32]))
	if ipv4 {
		original = netip.AddrFrom4([4]byte(b[16:20]))
	}
	return state, &Connection{
		Original: netip.AddrPortFrom(original, binary.BigEndian.Uint16(b[32:])),
		Mark:     binary.NativeEndian.Uint32(b),
		Zone:     binary.NativeEndian.Uint16(b[12:]),
		Status:   rules.Status(status) & rules.AllStatus,
		State:    state,
		Reply:    b[14] != 0,
	}
}

// encode returns the bytes of the packet with the token. If inner is not nil, the packet is an ICMP
// error about inner, and contains the beginning of inner.
func encode(p *rules.Packet, token uint32, inner []byte) []byte {
	from, to := p.Source.Addr(), p.Destination.Addr()
	var segment []byte
	checksumAt := -1
	switch p.Protocol {
	case rules.TCP:
		segment = make([]byte, tcpHeaderSize)
		binary.BigEndian.PutUint32(segment[4:], sequenceOf(token))
		if p.Flags&rules.ACK != 0 {
			binary.BigEndian.PutUint32(segment[8:], sequenceOf(token))
		}
		segment[12], segment[13] = 5<<4, byte(p.Flags)
		binary.BigEndian.PutUint16(segment[14:], 1000)
		checksumAt = 16
	case rules.UDP:
		segment = make([]byte, 8)
		binary.BigEndian.PutUint16(segment[4:], notesAt+notesSize+8)
		checksumAt = 6
	case rules.ICMP, rules.ICMPv6:
		segment = make([]byte, 8)
		segment[0], segment[1] = p.ICMPType, p.ICMPCode
		if inner == nil {
			// The identifier is unique for each connection.
			binary.BigEndian.PutUint16(segment[4:], uint16(token))
		}
		segment = append(segment, inner[:min(len(inner), 48)]...) // the headers of IPv6 and UDP
		checksumAt = 2
	default:
		segment = make([]byte, 8)
	}
	if p.Protocol == rules.TCP || p.Protocol == rules.UDP {
		binary.BigEndian.PutUint16(segment, p.Source.Port())
		binary.BigEndian.PutUint16(segment[2:], p.Destination.Port())
	}
	segment = append(segment, make([]byte, notesAt-len(segment))...)
	segment = append(segment, initialNotes()...)
	segment = binary.BigEndian.AppendUint32(segment, magic)
	segment = binary.BigEndian.AppendUint32(segment, token)
	if checksumAt >= 0 {
		sum := sum16(0, segment)
		if hasPseudoHeader := p.Protocol != rules.ICMP; hasPseudoHeader {
			sum = sum16(sum, from.AsSlice())
			sum = sum16(sum, to.AsSlice())
			sum += uint32(p.Protocol) + uint32(len(segment))
		}
		checksum := checksumOf(sum)
		if checksum == 0 && p.Protocol == rules.UDP {
			checksum = 0xffff // 0 means no checksum
		}
		binary.BigEndian.PutUint16(segment[checksumAt:], checksum)
	}
	protocol := p.Protocol
	// Every second IPv6 packet has an extension header.
	if to.Is6() && token%2 == 1 {
		segment = append([]byte{byte(protocol), extensionSize - 1: 0}, segment...)
		protocol = extensions[token/2%uint32(len(extensions))]
	}
	return append(header(from, to, protocol, len(segment), uint16(token)), segment...)
}

const tcpHeaderSize = 20 // bytes

// sequenceOf returns the sequence and acknowledgment number of a TCP packet with the token. A reset
// that a rule sends contains only these numbers of the packet; see [tokenOfReset].
func sequenceOf(token uint32) uint32 { return token * 4 }

// tokenOfReset returns the token of the packet that a reset answers, from the TCP header of the
// reset. The sequence number of the reset is the acknowledgment number of the packet. If the packet
// has none, the acknowledgment number of the reset is the sequence number of the packet, plus the
// size of its payload, plus 1 for each of the flags SYN and FIN (nf_reject_ip_tcphdr_put in
// net/ipv4/netfilter/nf_reject_ipv4.c).
func tokenOfReset(header []byte) uint32 {
	const payloadSize = notesAt + notesSize + 8 - tcpHeaderSize
	if rules.TCPFlags(header[13])&rules.ACK == 0 {
		return binary.BigEndian.Uint32(header[4:]) / 4
	}
	return (binary.BigEndian.Uint32(header[8:]) - payloadSize) / 4 // SYN and FIN count at most 2
}

// extensions contains the extension headers of half of the IPv6 packets. The model does not
// distinguish packets with and without them. Zeros after the first byte are valid in each header:
// padding options, or a routing header without segments left.
var extensions = []rules.Protocol{unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_DSTOPTS}

const extensionSize = 8 // bytes

// header returns the IP header of a packet with length bytes after it.
func header(from, to netip.Addr, protocol rules.Protocol, length int, id uint16) []byte {
	var h []byte
	if from.Is4() {
		h = make([]byte, 12, 20)
		h[0] = 0x45
		binary.BigEndian.PutUint16(h[2:], uint16(20+length))
		binary.BigEndian.PutUint16(h[4:], id|1) // the kernel replaces 0
		h[8], h[9] = 64, byte(protocol)
		h = append(append(h, from.AsSlice()...), to.AsSlice()...)
		binary.BigEndian.PutUint16(h[10:], checksumOf(sum16(0, h)))
		return h
	}
	h = make([]byte, 8, 40)
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(length))
	h[6], h[7] = byte(protocol), 64
	return append(append(h, from.AsSlice()...), to.AsSlice()...)
}

// sum16 adds the data as 16-bit words to the sum (RFC 1071).
func sum16(sum uint32, data []byte) uint32 {
	for ; len(data) > 1; data = data[2:] {
		sum += uint32(binary.BigEndian.Uint16(data))
	}
	if len(data) == 1 {
		sum += uint32(data[0]) << 8
	}
	return sum
}

// checksumOf returns the Internet checksum for a sum of 16-bit words (RFC 1071).
func checksumOf(sum uint32) uint16 {
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// decodedPacket contains the fields of a logged packet.
type decodedPacket struct {
	// token is the token of the packet or, for an answer, of the packet that it answers.
	token    uint32
	protocol rules.Protocol
	from, to netip.AddrPort
	hasToken bool // the packet itself has a token
	state    rules.State
	conn     *Connection // nil if the packet has none
	// answer describes the packet if it is the kernel's answer to another packet, and is otherwise
	// empty.
	answer string
}

// decode parses a logged packet.
func decode(b []byte) decodedPacket {
	var d decodedPacket
	var from, to netip.Addr
	switch {
	case len(b) >= 20 && b[0]>>4 == 4:
		d.protocol = rules.Protocol(b[9])
		from, to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		b = b[min(len(b), int(b[0]&15)*4):]
	case len(b) >= 40 && b[0]>>4 == 6:
		d.protocol = rules.Protocol(b[6])
		from, to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		b = b[40:]
		if slices.Contains(extensions, d.protocol) && len(b) >= extensionSize {
			d.protocol, b = rules.Protocol(b[0]), b[extensionSize:]
		}
	default:
		return d
	}
	var fromPort, toPort uint16
	if (d.protocol == rules.TCP || d.protocol == rules.UDP) && len(b) >= 4 {
		fromPort, toPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	d.from, d.to = netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
	if end := notesAt + notesSize; len(b) == end+8 && binary.BigEndian.Uint32(b[end:]) == magic {
		d.token, d.hasToken = binary.BigEndian.Uint32(b[end+4:]), true
		d.state, d.conn = readNotes(b[notesAt:], to.Is4())
		return d
	}
	d.readAnswer(b)
	return d
}

// readAnswer parses the answer to a rejected packet after the IP header: a reset, or an ICMP error,
// which contains the packet with its token.
func (d *decodedPacket) readAnswer(b []byte) {
	switch {
	case d.protocol == rules.TCP && len(b) >= tcpHeaderSize && rules.TCPFlags(b[13])&rules.RST != 0:
		d.answer, d.token = "tcp reset", tokenOfReset(b)
	case d.protocol == rules.ICMP && len(b) > 8+20 && b[0] == 3,
		d.protocol == rules.ICMPv6 && len(b) > 8+40 && b[0] >= 1 && b[0] <= 4:
		if inner := decode(b[8:]); inner.hasToken {
			d.answer, d.token = fmt.Sprintf("%s %d/%d", d.protocol, b[0], b[1]), inner.token
		}
	}
}
