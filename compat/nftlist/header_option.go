package nftlist

import (
	"encoding/json"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tcpOptions contains the options of TCP that nft knows, with the numbers of their kinds.
var tcpOptions = nameTable{
	{"eol", 0},
	{"nop", 1},
	{"maxseg", 2},
	{"window", 3},
	{"sack-perm", 4},
	{"sack", 5},
	{"timestamp", 8},
	{"md5sig", 19},
	{"mptcp", 30},
	{"fastopen", 34},
}

// ipv4Options and extensionHeaders contain the options of IPv4 and the extension headers of IPv6
// whose presence nft can test.
var (
	ipv4Options      = nameTable{{"rr", 7}, {"lsrr", 131}, {"ssrr", 137}, {"ra", 148}}
	extensionHeaders = nameTable{
		{"hbh", unix.IPPROTO_HOPOPTS},
		{"rt", unix.IPPROTO_ROUTING},
		{"frag", unix.IPPROTO_FRAGMENT},
		{"ah", unix.IPPROTO_AH},
		{"dst", unix.IPPROTO_DSTOPTS},
		{"mh", unix.IPPROTO_MH},
	}
)

// An optionObject is the body of "tcp option", "ip option" or "exthdr".
type optionObject struct{ Name, Field string }

// optionField translates a field of an option of TCP.
func optionField(body json.RawMessage) (field, bool) {
	var object optionObject
	if !exactly(body, &object) {
		return field{}, false
	}
	number, _ := tcpOptions.find(object.Name)
	offset, t := uint32(0), byteType
	switch object.Name + " " + object.Field {
	case "maxseg size":
		offset, t = 2, portType
	case "window count":
		offset = 2
	case "sack left", "timestamp tsval":
		offset, t = 2, idType
	case "sack right", "timestamp tsecr":
		offset, t = 6, idType
	default:
		return field{}, false
	}
	return newField(t, func(reg uint32, length int) expr.Any {
		return &expr.Exthdr{
			DestRegister: reg, Type: uint8(number), Offset: offset, Len: uint32(length),
			Op: unix.NFT_EXTHDR_OP_TCPOPT,
		}
	})
}

// needOption records that the statement reads an option of TCP. Before such a statement nft omits
// every condition on the protocol. This includes "ip protocol tcp", which also limits the family,
// and "ip6 nexthdr tcp", which does not match packets with extension headers.
func (c *compiler) needOption() {
	if c.network != "ip" {
		c.mayOmit("ip protocol or ip6 nexthdr")
	}
}

// presenceField translates the condition that a packet has an option or an extension header.
func (c *compiler) presenceField(kind string, body json.RawMessage) (field, bool) {
	var object optionObject
	if !exactly(body, &object) || object.Field != "" {
		return field{}, false
	}
	if kind == "tcp option" {
		c.needOption()
	}
	names, op, network := tcpOptions, expr.ExthdrOp(unix.NFT_EXTHDR_OP_TCPOPT), ""
	switch kind {
	case "ip option":
		const opIPv4 = 2 // NFT_EXTHDR_OP_IPV4, which package unix lacks
		names, op, network = ipv4Options, opIPv4, "ip"
	case "exthdr":
		names, op, network = extensionHeaders, unix.NFT_EXTHDR_OP_IPV6, "ip6"
	}
	number, ok := names.find(object.Name)
	if !ok || network != "" && !c.needNetwork(network) {
		return field{}, false
	}
	return newField(booleanType, func(reg uint32, _ int) expr.Any {
		return &expr.Exthdr{
			DestRegister: reg, Type: uint8(number), Len: 1, Flags: unix.NFT_EXTHDR_F_PRESENT, Op: op,
		}
	})
}

// isPresence reports whether the left side of a comparison is an option or an extension header
// without a field.
func isPresence(kind string, body json.RawMessage) bool {
	var object optionObject
	switch kind {
	case "tcp option", "ip option", "exthdr":
		return exactly(body, &object) && object.Field == ""
	}
	return false
}

// routeField translates a property of the route of the packet (rt).
func routeField(body json.RawMessage) (field, bool) {
	var object struct{ Key, Family string }
	if !exactly(body, &object) {
		return field{}, false
	}
	t, key := realmType, expr.RtClassid
	switch object.Key + " " + object.Family {
	case "classid ":
	case "nexthop ip":
		t, key = ipv4Type, expr.RtNexthop4
	case "nexthop ip6":
		t, key = ipv6Type, expr.RtNexthop6
	case "mtu ":
		t, key = mtuType, expr.RtTCPMSS
	case "ipsec ":
		const keyXFRM = 4 // NFT_RT_XFRM, which package expr lacks
		t, key = booleanType, keyXFRM
	default:
		return field{}, false
	}
	return newField(t, func(reg uint32, _ int) expr.Any { return &expr.Rt{Register: reg, Key: key} })
}
