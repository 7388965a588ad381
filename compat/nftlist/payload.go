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

// The headers, by the names that nft uses for raw payload expressions, such as @th,160,16.
const (
	ll = expr.PayloadBaseLLHeader
	nh = expr.PayloadBaseNetworkHeader
	th = expr.PayloadBaseTransportHeader
	ih = 3 // NFT_PAYLOAD_INNER_HEADER, which package expr lacks
)

// headerFields contains the fields of headers, by protocol and name, except for ports.
var headerFields = table[headerField]{
	{"ip version", headerField{nh, 0, highNibbleType}},
	{"ip hdrlength", headerField{nh, 0, lowNibbleType}},
	{"ip dscp", headerField{nh, 1, ipDSCPType}},
	{"ip ecn", headerField{nh, 1, ecnType}},
	{"ip length", headerField{nh, 2, portType}},
	{"ip id", headerField{nh, 4, portType}},
	{"ip frag-off", headerField{nh, 6, portType}},
	{"ip ttl", headerField{nh, 8, byteType}},
	{"ip protocol", headerField{nh, 9, protocolType}},
	{"ip checksum", headerField{nh, 10, portType}},
	{"ip saddr", headerField{nh, 12, ipv4Type}},
	{"ip daddr", headerField{nh, 16, ipv4Type}},

	{"ip6 version", headerField{nh, 0, highNibbleType}},
	{"ip6 dscp", headerField{nh, 0, ip6DSCPType}},
	{"ip6 ecn", headerField{nh, 1, ip6ECNType}},
	{"ip6 flowlabel", headerField{nh, 1, flowLabelType}},
	{"ip6 length", headerField{nh, 4, portType}},
	{"ip6 nexthdr", headerField{nh, 6, protocolType}},
	{"ip6 hoplimit", headerField{nh, 7, byteType}},
	{"ip6 saddr", headerField{nh, 8, ipv6Type}},
	{"ip6 daddr", headerField{nh, 24, ipv6Type}},

	{"icmp type", headerField{th, 0, icmpType}},
	{"icmp code", headerField{th, 1, icmpCode}},
	{"icmp checksum", headerField{th, 2, portType}},
	{"icmp id", headerField{th, 4, portType}},
	{"icmp gateway", headerField{th, 4, idType}},
	{"icmp sequence", headerField{th, 6, portType}},
	{"icmp mtu", headerField{th, 6, portType}},

	{"icmpv6 type", headerField{th, 0, icmpv6Type}},
	{"icmpv6 code", headerField{th, 1, icmpv6Code}},
	{"icmpv6 checksum", headerField{th, 2, portType}},
	{"icmpv6 id", headerField{th, 4, portType}},
	{"icmpv6 max-delay", headerField{th, 4, portType}},
	{"icmpv6 mtu", headerField{th, 4, idType}},
	{"icmpv6 parameter-problem", headerField{th, 4, idType}},
	{"icmpv6 sequence", headerField{th, 6, portType}},

	{"tcp sequence", headerField{th, 4, idType}},
	{"tcp ackseq", headerField{th, 8, idType}},
	{"tcp doff", headerField{th, 12, highNibbleType}},
	{"tcp reserved", headerField{th, 12, lowNibbleType}},
	{"tcp flags", headerField{th, 13, tcpFlagsType}},
	{"tcp window", headerField{th, 14, portType}},
	{"tcp checksum", headerField{th, 16, portType}},
	{"tcp urgptr", headerField{th, 18, portType}},

	{"udp length", headerField{th, 4, portType}},
	{"udp checksum", headerField{th, 6, portType}},
	{"udplite csumcov", headerField{th, 4, portType}},
	{"udplite checksum", headerField{th, 6, portType}},
	{"sctp vtag", headerField{th, 4, idType}},
	{"sctp checksum", headerField{th, 8, idType}},
	{"ah spi", headerField{th, 4, idType}},
	{"ah sequence", headerField{th, 8, idType}},
	{"esp spi", headerField{th, 0, idType}},
	{"esp sequence", headerField{th, 4, idType}},
}

// portFields contains the ports, which are at the same position in every protocol that has ports.
var portFields = table[headerField]{
	{"sport", headerField{th, 0, portType}},
	{"dport", headerField{th, 2, portType}},
}

// impliedICMPTypes contains the fields that only messages of one type of ICMP or ICMPv6 have,
// with the type. nft does not list the condition that the message has this type. It lists the
// condition for fields that messages of several types have, such as the identifier.
var impliedICMPTypes = nameTable{
	{"icmp mtu", 3},                 // ICMP_DEST_UNREACH
	{"icmp gateway", 5},             // ICMP_REDIRECT
	{"icmpv6 mtu", 2},               // ICMPV6_PKT_TOOBIG
	{"icmpv6 parameter-problem", 4}, // ICMPV6_PARAMPROB
	{"icmpv6 max-delay", 130},       // ICMPV6_MGM_QUERY
}

// headerFieldOf returns the field of a protocol with the name. For a transport protocol without
// ports it also returns the ports; nft lists no such field.
func headerFieldOf(protocol, name string) (headerField, bool) {
	if _, ok := transportProtocol(protocol); ok || protocol == "th" {
		if f, ok := portFields.find(name); ok {
			return f, true
		}
	}
	return headerFields.find(protocol + " " + name)
}

// transportProtocol returns the number of a transport protocol whose fields nft can compare.
func transportProtocol(name string) (byte, bool) {
	switch name {
	case "tcp", "udp", "udplite", "sctp", "dccp", "icmp", "icmpv6", "ah", "esp":
		number, ok := parseProtocol(name)
		return byte(number), ok
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
	if kind, ok := impliedICMPTypes.find(object.Protocol + " " + object.Field); ok {
		c.addImplied(headerField{h.base, 0, byteType}.payload(1, byteType.size),
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(kind)}})
	}
	return h.field(), true
}

// rawPayloadField translates a part of the packet without a name, such as @th,160,16.
func rawPayloadField(body json.RawMessage) (field, bool) {
	var object struct {
		Base        string
		Offset, Len uint32 // in bits
	}
	bases := map[string]expr.PayloadBase{"ll": ll, "nh": nh, "th": th, "ih": ih}
	const maxLen = 128 // the bits of a register of 16 bytes
	if !exactly(body, &object) || object.Offset%8 != 0 || object.Len%8 != 0 || object.Len == 0 ||
		object.Len > maxLen {
		return field{}, false
	}
	base, ok := bases[object.Base]
	return headerField{base, object.Offset / 8, datatype{size: int(object.Len / 8)}}.field(), ok
}

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
		c.needICMPNetwork("ip")
	case "icmpv6":
		c.needICMPNetwork("ip6")
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

// needICMPNetwork adds the condition that the packet has the network protocol of icmp or icmpv6,
// unless the table or an earlier statement implies a network protocol. Unlike needNetwork, it
// accepts a different network protocol: nft accepts icmpv6 after ip, and icmp after ip6.
func (c *compiler) needICMPNetwork(protocol string) {
	if c.network == "" && !c.isOtherFamily {
		c.needNetwork(protocol)
	}
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
