package nftlist

import (
	"encoding/json"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A headerField describes the position of a field in a header.
type headerField struct {
	base   expr.PayloadBase
	offset uint32 // in bytes
	datatype
}

// headerFieldOf returns the field of a protocol with the name.
func headerFieldOf(protocol, name string) (headerField, bool) {
	if f, ok := networkFieldOf(protocol + " " + name); ok {
		return f, true
	}
	if f, ok := controlFieldOf(protocol + " " + name); ok {
		return f, true
	}
	return transportFieldOf(protocol, name)
}

// atNetwork and atTransport return a field at an offset of the network or the transport header.
func atNetwork(offset uint32, t datatype) (headerField, bool) {
	return headerField{expr.PayloadBaseNetworkHeader, offset, t}, true
}

func atTransport(offset uint32, t datatype) (headerField, bool) {
	return headerField{expr.PayloadBaseTransportHeader, offset, t}, true
}

// networkFieldOf returns the field of IPv4 or IPv6 with the name.
func networkFieldOf(name string) (headerField, bool) {
	switch name {
	case "ip version", "ip6 version":
		return atNetwork(0, bitsType(1, 4, 4))
	case "ip hdrlength":
		return atNetwork(0, bitsType(1, 4, 0))
	case "ip dscp":
		return atNetwork(1, dscpType(1, 2))
	case "ip ecn":
		return atNetwork(1, ecnType(0))
	case "ip length":
		return atNetwork(2, portType)
	case "ip id":
		return atNetwork(4, portType)
	case "ip frag-off":
		return atNetwork(6, portType)
	case "ip ttl":
		return atNetwork(8, byteType)
	case "ip protocol":
		return atNetwork(9, protocolType)
	case "ip checksum":
		return atNetwork(10, portType)
	case "ip saddr":
		return atNetwork(12, ipv4Type)
	case "ip daddr":
		return atNetwork(16, ipv4Type)
	case "ip6 dscp":
		return atNetwork(0, dscpType(2, 6))
	case "ip6 ecn":
		return atNetwork(1, ecnType(4))
	case "ip6 flowlabel":
		return atNetwork(1, bitsType(3, 20, 0))
	case "ip6 length":
		return atNetwork(4, portType)
	case "ip6 nexthdr":
		return atNetwork(6, protocolType)
	case "ip6 hoplimit":
		return atNetwork(7, byteType)
	case "ip6 saddr":
		return atNetwork(8, ipv6Type)
	case "ip6 daddr":
		return atNetwork(24, ipv6Type)
	}
	return headerField{}, false
}

// controlFieldOf returns the field of ICMP or ICMPv6 with the name.
func controlFieldOf(name string) (headerField, bool) {
	switch name {
	case "icmp type":
		return atTransport(0, icmpType)
	case "icmp code":
		return atTransport(1, icmpCode)
	case "icmpv6 type":
		return atTransport(0, icmpv6Type)
	case "icmpv6 code":
		return atTransport(1, icmpv6Code)
	case "icmp checksum", "icmpv6 checksum":
		return atTransport(2, portType)
	case "icmp id", "icmpv6 id", "icmpv6 max-delay":
		return atTransport(4, portType)
	case "icmp sequence", "icmpv6 sequence", "icmp mtu":
		return atTransport(6, portType)
	case "icmp gateway", "icmpv6 mtu", "icmpv6 parameter-problem":
		return atTransport(4, idType)
	}
	return headerField{}, false
}

// impliedControlType returns the type of ICMP or ICMPv6 messages with a field. nft does not list
// the condition that the message has this type. It lists the condition for fields that messages of
// several types have, such as the identifier.
func impliedControlType(protocol, name string) (kind byte, ok bool) {
	switch protocol + " " + name {
	case "icmp mtu":
		return 3, true // ICMP_DEST_UNREACH
	case "icmp gateway":
		return 5, true // ICMP_REDIRECT
	case "icmpv6 mtu":
		return 2, true // ICMPV6_PKT_TOOBIG
	case "icmpv6 parameter-problem":
		return 4, true // ICMPV6_PARAMPROB
	case "icmpv6 max-delay":
		return 130, true // ICMPV6_MGM_QUERY
	}
	return 0, false
}

// transportFieldOf returns the field of a transport protocol.
func transportFieldOf(protocol, name string) (headerField, bool) {
	switch protocol + " " + name {
	case "tcp sequence":
		return atTransport(4, idType)
	case "tcp ackseq":
		return atTransport(8, idType)
	case "tcp doff":
		return atTransport(12, bitsType(1, 4, 4))
	case "tcp reserved":
		return atTransport(12, bitsType(1, 4, 0))
	case "tcp flags":
		return atTransport(13, tcpFlagsType)
	case "tcp window":
		return atTransport(14, portType)
	case "tcp checksum":
		return atTransport(16, portType)
	case "tcp urgptr":
		return atTransport(18, portType)
	case "udp length", "udplite csumcov":
		return atTransport(4, portType)
	case "udp checksum", "udplite checksum":
		return atTransport(6, portType)
	case "sctp vtag":
		return atTransport(4, idType)
	case "sctp checksum":
		return atTransport(8, idType)
	case "ah spi", "esp sequence":
		return atTransport(4, idType)
	case "ah sequence":
		return atTransport(8, idType)
	case "esp spi":
		return atTransport(0, idType)
	}
	if _, ok := transportProtocol(protocol); ok || protocol == "th" {
		switch name {
		case "sport":
			return atTransport(0, portType)
		case "dport":
			return atTransport(2, portType)
		}
	}
	return headerField{}, false
}

// transportProtocol returns the number of a transport protocol whose fields nft can compare.
func transportProtocol(name string) (byte, bool) {
	switch name {
	case "tcp":
		return unix.IPPROTO_TCP, true
	case "udp":
		return unix.IPPROTO_UDP, true
	case "udplite":
		return unix.IPPROTO_UDPLITE, true
	case "sctp":
		return unix.IPPROTO_SCTP, true
	case "dccp":
		return unix.IPPROTO_DCCP, true
	case "icmp":
		return unix.IPPROTO_ICMP, true
	case "icmpv6":
		return unix.IPPROTO_ICMPV6, true
	case "ah":
		return unix.IPPROTO_AH, true
	case "esp":
		return unix.IPPROTO_ESP, true
	}
	return 0, false
}

// payloadField translates a field of a header. Like nft it first adds the condition that the packet
// has the header, unless an earlier statement implies it.
func (c *compiler) payloadField(body json.RawMessage) (field, bool) {
	var object struct{ Protocol, Field string }
	if !exactly(body, &object) {
		return rawPayloadField(body)
	}
	h, ok := headerFieldOf(object.Protocol, object.Field)
	if !ok || !c.needHeader(object.Protocol) {
		return field{}, false
	}
	if kind, ok := impliedControlType(object.Protocol, object.Field); ok {
		c.addImplied(headerField{h.base, 0, byteType}.payload(1, byteType.size),
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{kind}})
	}
	return h.field(), true
}

// rawPayloadField translates a part of the packet without a name, such as @th,160,16.
func rawPayloadField(body json.RawMessage) (field, bool) {
	var object struct {
		Base        string
		Offset, Len uint32 // in bits
	}
	bases := map[string]expr.PayloadBase{
		"ll": expr.PayloadBaseLLHeader, "nh": expr.PayloadBaseNetworkHeader,
		"th": expr.PayloadBaseTransportHeader, "ih": payloadBaseInner,
	}
	const maxLen = 128 // the bits of a register of 16 bytes
	if !exactly(body, &object) || object.Offset%8 != 0 || object.Len%8 != 0 || object.Len == 0 ||
		object.Len > maxLen {
		return field{}, false
	}
	base, ok := bases[object.Base]
	return headerField{base, object.Offset / 8, datatype{size: int(object.Len / 8)}}.field(), ok
}

// payloadBaseInner is NFT_PAYLOAD_INNER_HEADER, which package expr lacks.
const payloadBaseInner = 3

// field returns the field with the expressions that load it.
func (h headerField) field() field {
	return field{h.datatype, func(c *compiler, reg register, length int) {
		c.add(h.payload(reg.number(), length))
		if h.bits != 0 {
			mask, _ := datatype{size: h.size, shift: h.shift}.number(1<<h.bits-1, false)
			c.addBitwise(reg, mask, make([]byte, h.size))
		}
	}}
}

// payload returns the expression that loads the first length bytes of the field.
func (h headerField) payload(reg uint32, length int) *expr.Payload {
	return &expr.Payload{DestRegister: reg, Base: h.base, Offset: h.offset, Len: uint32(length)}
}

// needHeader adds the condition that the packet has the header of a protocol. It returns false if
// the table or an earlier statement excludes the protocol. nft does not accept such a rule.
func (c *compiler) needHeader(protocol string) bool {
	switch protocol {
	case "ip", "ip6":
		return c.needNetwork(protocol)
	case "icmp":
		if !c.needNetwork("ip") {
			return false
		}
	case "icmpv6":
		if !c.needNetwork("ip6") {
			return false
		}
	case "th":
		return true
	}
	number, _ := transportProtocol(protocol)
	if c.transport == nil {
		c.addImplied(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}})
		c.transport = &number
	}
	return *c.transport == number
}

// needNetwork adds the condition that the network protocol of the packet is ip or ip6. It returns
// false if the table or an earlier statement excludes the protocol.
func (c *compiler) needNetwork(protocol string) bool {
	if c.network == "" {
		number := byte(unix.NFPROTO_IPV4)
		if protocol == "ip6" {
			number = unix.NFPROTO_IPV6
		}
		c.addImplied(&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{number}})
		c.network = protocol
	}
	return c.network == protocol
}
