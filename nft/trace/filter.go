package trace

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// A Filter selects the packets to trace. The zero value selects all packets.
type Filter struct {
	// In selects packets that arrive from another host, and Out packets that local sockets send. If
	// both are false, both kinds are selected.
	In, Out bool
	// To and From are the destination and the source of the packet when it enters its first hook.
	// An invalid address means any address, and port 0 any port.
	To, From netip.AddrPort
	// Port is the destination port. 0 means any port.
	Port uint16
	// UID is the user of the sending socket. nil means any user. Only packets of local sockets
	// have a user.
	UID *uint32
}

// HasHook reports whether the filter selects packets at the hook.
func (f Filter) HasHook(h rules.Hook) bool {
	if f.In == f.Out {
		// Both kinds of packets are selected. Only packets of local sockets have a user.
		return h == rules.Output || f.UID == nil
	}
	return f.Out == (h == rules.Output)
}

// expressions returns the expressions that match the selected packets at a hook.
func (f Filter) expressions(h rules.Hook) []expr.Any {
	var list []expr.Any
	if h == rules.Prerouting {
		// Exclude packets from lo. Local sockets sent them, and output selects them.
		lo := append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)
		list = append(list, meta(expr.MetaKeyIIFNAME), compare(expr.CmpOpNeq, lo))
	}
	list = append(list, addrPort(f.From, source4, source6, sourcePort)...)
	list = append(list, addrPort(f.To, destination4, destination6, destinationPort)...)
	if f.Port != 0 {
		list = append(list, port(destinationPort, f.Port)...)
	}
	if f.UID != nil {
		uid := binaryutil.NativeEndian.PutUint32(*f.UID)
		list = append(list, meta(expr.MetaKeySKUID), compare(expr.CmpOpEq, uid))
	}
	return list
}

// addrPort returns the expressions that match an address and a port. offset4 and offset6 are the
// offsets of the address in the IPv4 and the IPv6 header, and offsetPort is the offset of the port
// in the transport header.
func addrPort(a netip.AddrPort, offset4, offset6, offsetPort uint32) []expr.Any {
	var list []expr.Any
	if addr := a.Addr(); addr.IsValid() {
		family, offset := byte(unix.NFPROTO_IPV4), offset4
		if addr.Is6() {
			family, offset = unix.NFPROTO_IPV6, offset6
		}
		bytes := addr.AsSlice()
		list = append(list, meta(expr.MetaKeyNFPROTO), compare(expr.CmpOpEq, []byte{family}),
			load(expr.PayloadBaseNetworkHeader, offset, uint32(len(bytes))),
			compare(expr.CmpOpEq, bytes))
	}
	if a.Port() != 0 {
		list = append(list, port(offsetPort, a.Port())...)
	}
	return list
}

// Offsets of the addresses in the IPv4 and the IPv6 header.
const (
	source4, destination4 = 12, 16
	source6, destination6 = 8, 24
)

// Offsets of the ports in the transport header, which are equal for TCP, UDP, SCTP, DCCP and
// UDP-Lite.
const (
	sourcePort      = 0
	destinationPort = 2
)

// port returns the expressions that match the port at an offset of the transport header.
func port(offset uint32, n uint16) []expr.Any {
	return []expr.Any{
		load(expr.PayloadBaseTransportHeader, offset, 2),
		compare(expr.CmpOpEq, binary.BigEndian.AppendUint16(nil, n)),
	}
}

// register is the register of all expressions.
const register = 1

// meta returns the expression that loads a property of the packet.
func meta(key expr.MetaKey) expr.Any { return &expr.Meta{Key: key, Register: register} }

// load returns the expression that loads bytes of the packet. base is the header to which the
// offset refers.
func load(base expr.PayloadBase, offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: register, Base: base, Offset: offset, Len: length}
}

// compare returns the expression that compares the loaded value with data.
func compare(op expr.CmpOp, data []byte) expr.Any {
	return &expr.Cmp{Op: op, Register: register, Data: data}
}

// firstSegment returns the expressions that match the first TCP segment of a connection.
func firstSegment() []expr.Any {
	const flagsOffset = 13 // in the TCP header
	return []expr.Any{
		meta(expr.MetaKeyL4PROTO), compare(expr.CmpOpEq, []byte{unix.IPPROTO_TCP}),
		load(expr.PayloadBaseTransportHeader, flagsOffset, 1),
		and(1, []byte{byte(rules.FIN | rules.SYN | rules.RST | rules.ACK)}),
		compare(expr.CmpOpEq, []byte{byte(rules.SYN)}),
	}
}

// firstPacket returns the expressions that match packets of protocols other than TCP in the
// conntrack state new.
func firstPacket() []expr.Any {
	return []expr.Any{
		meta(expr.MetaKeyL4PROTO), compare(expr.CmpOpNeq, []byte{unix.IPPROTO_TCP}),
		&expr.Ct{Key: expr.CtKeySTATE, Register: register},
		and(4, binaryutil.NativeEndian.PutUint32(stateNew)),
		compare(expr.CmpOpNeq, make([]byte, 4)),
	}
}

// and returns the expression that clears the bits of the loaded value that are not in the mask.
func and(length uint32, mask []byte) expr.Any {
	return &expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: length,
		Mask: mask, Xor: make([]byte, length),
	}
}

// enableTrace returns the expressions that enable tracing of the packet, for at most rate packets
// per second on average, and a burst of as many.
func enableTrace(rate uint32) []expr.Any {
	return []expr.Any{
		&expr.Limit{
			Type: expr.LimitTypePkts, Rate: uint64(rate), Unit: expr.LimitTimeSecond, Burst: rate,
		},
		&expr.Immediate{Register: register, Data: []byte{1}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, SourceRegister: true, Register: register},
	}
}
