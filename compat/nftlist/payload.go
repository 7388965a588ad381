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
	network := func(offset uint32, t datatype) (headerField, bool) {
		return headerField{expr.PayloadBaseNetworkHeader, offset, t}, true
	}
	transport := func(offset uint32, t datatype) (headerField, bool) {
		return headerField{expr.PayloadBaseTransportHeader, offset, t}, true
	}
	switch protocol + " " + name {
	case "ip saddr":
		return network(12, ipv4Type)
	case "ip daddr":
		return network(16, ipv4Type)
	case "ip protocol":
		return network(9, protocolType)
	case "ip length":
		return network(2, portType)
	case "ip ttl":
		return network(8, byteType)
	case "ip6 saddr":
		return network(8, ipv6Type)
	case "ip6 daddr":
		return network(24, ipv6Type)
	case "ip6 nexthdr":
		return network(6, protocolType)
	case "ip6 length":
		return network(4, portType)
	case "ip6 hoplimit":
		return network(7, byteType)
	case "tcp flags":
		return transport(13, tcpFlagsType)
	case "icmp type":
		return transport(0, icmpType)
	case "icmp code":
		return transport(1, icmpCode)
	case "icmpv6 type":
		return transport(0, icmpv6Type)
	case "icmpv6 code":
		return transport(1, icmpv6Code)
	}
	if _, ok := transportProtocol(protocol); ok || protocol == "th" {
		switch name {
		case "sport":
			return transport(0, portType)
		case "dport":
			return transport(2, portType)
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
	}
	return 0, false
}

// payloadField translates a field of a header. Like nft it first adds the condition that the packet
// has the header, unless an earlier statement implies it.
func (c *compiler) payloadField(body json.RawMessage) (field, bool) {
	var object struct{ Protocol, Field string }
	if !exactly(body, &object) {
		return field{}, false
	}
	h, ok := headerFieldOf(object.Protocol, object.Field)
	if !ok || !c.needHeader(object.Protocol) {
		return field{}, false
	}
	return newField(h.datatype, func(reg uint32, length int) expr.Any {
		return &expr.Payload{
			DestRegister: reg, Base: h.base, Offset: h.offset, Len: uint32(length),
		}
	})
}

// needHeader adds the conditions that the packet has the header of a protocol. It returns false if
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
