package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// writePacketAction encodes an expression that translates, diverts, rejects or logs a packet, or
// excludes it from conntrack. It reports whether the expression is such an action. Attributes are
// in the order of the kernel's dumps.
func (e *encoder) writePacketAction(x expr.Any) bool {
	switch x := x.(type) {
	case *expr.Redir:
		e.writeNAT("redir", nil, portRange(unix.NFTA_REDIR_REG_PROTO_MIN,
			unix.NFTA_REDIR_REG_PROTO_MAX, x.RegisterProtoMin, x.RegisterProtoMax),
			unix.NFTA_REDIR_FLAGS, x.Flags)
	case *expr.NAT:
		attrs := []numberAttribute{
			{unix.NFTA_NAT_TYPE, uint32(x.Type)}, {unix.NFTA_NAT_FAMILY, x.Family},
		}
		flags := rangeFlags(x.Random, x.FullyRandom, x.Persistent) |
			flagIf(x.Prefix, natRangeNetmap) | flagIf(x.RegProtoMin != 0, natRangeProtoSpecified)
		if x.RegAddrMin != 0 {
			flags |= natRangeMapIPs
			attrs = append(attrs, numberAttribute{unix.NFTA_NAT_REG_ADDR_MIN, x.RegAddrMin},
				numberAttribute{unix.NFTA_NAT_REG_ADDR_MAX, x.RegAddrMax})
		}
		e.writeNAT("nat", attrs, portRange(unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX,
			x.RegProtoMin, x.RegProtoMax), unix.NFTA_NAT_FLAGS, flags)
	case *expr.Masq:
		var attrs []numberAttribute
		flags := rangeFlags(x.Random, x.FullyRandom, x.Persistent) |
			flagIf(x.RegProtoMin != 0, natRangeProtoSpecified)
		if flags != 0 { // unlike for the other expressions, the flags precede the ports
			attrs = append(attrs, numberAttribute{unix.NFTA_MASQ_FLAGS, flags})
		}
		attrs = append(attrs, portRange(unix.NFTA_MASQ_REG_PROTO_MIN, unix.NFTA_MASQ_REG_PROTO_MAX,
			x.RegProtoMin, x.RegProtoMax)...)
		e.writeAttributes("masq", attrs)
	case *expr.TProxy:
		attrs := []numberAttribute{{nftaTProxyFamily, uint32(x.Family)}}
		if x.RegAddr != 0 {
			attrs = append(attrs, numberAttribute{nftaTProxyRegAddr, x.RegAddr})
		}
		if x.RegPort != 0 {
			attrs = append(attrs, numberAttribute{nftaTProxyRegPort, x.RegPort})
		}
		e.writeAttributes("tproxy", attrs)
	case *expr.Reject:
		e.writeExpression("reject", func() {
			e.addNumber(unix.NFTA_REJECT_TYPE, x.Type)
			if x.Type != unix.NFT_REJECT_TCP_RST {
				e.addAttr(unix.NFTA_REJECT_ICMP_CODE, []byte{x.Code})
			}
		})
	case *expr.Notrack:
		e.writeExpression("notrack", func() {})
	case *expr.Log:
		e.writeExpression("log", func() {})
	default:
		return false
	}
	return true
}

// writeNAT encodes an expression with a range of ports and flags. Flags that are 0 are omitted.
func (e *encoder) writeNAT(
	name string, attrs, ports []numberAttribute, flagsAttr uint16, flags uint32,
) {
	attrs = append(attrs, ports...)
	if flags != 0 {
		attrs = append(attrs, numberAttribute{flagsAttr, flags})
	}
	e.writeAttributes(name, attrs)
}

// portRange returns the attributes with the registers of the first and the last port of a range, or
// none if first is 0.
func portRange(minAttr, maxAttr uint16, first, last uint32) []numberAttribute {
	if first == 0 {
		return nil
	}
	return []numberAttribute{{minAttr, first}, {maxAttr, last}}
}

// rangeFlags returns the flags that say how the kernel selects an address or port from a range.
func rangeFlags(random, fullyRandom, persistent bool) uint32 {
	return flagIf(random, natRangeProtoRandom) | flagIf(fullyRandom, natRangeProtoRandomFully) |
		flagIf(persistent, natRangePersistent)
}
