package nft

import (
	"fmt"
	"net"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// payload is the location of a header field (RFC 791, 792, 4443, 8200, 9293): the kernel's number
// of the header, and the offset and the length of the field in bytes.
type payload struct{ base, offset, length uint32 }

var (
	sourcePort      = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2}
	destinationPort = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}
	bothPorts       = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 4}
	tcpFlags        = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1}
	icmpType        = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1}
	icmpCode        = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 1, 1}
	icmpTypeCode    = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2}
)

// addrField returns the location of the source or destination address.
func addrField(f rules.Family, side rules.Side) payload {
	p := payload{unix.NFT_PAYLOAD_NETWORK_HEADER, 12, 4}
	if f == rules.IPv6 {
		p = payload{unix.NFT_PAYLOAD_NETWORK_HEADER, 8, 16}
	}
	if side == rules.Destination {
		p.offset += p.length
	}
	return p
}

// nfproto returns the kernel's number of a family.
func nfproto(f rules.Family) uint8 {
	switch f {
	case rules.IPv4:
		return unix.NFPROTO_IPV4
	case rules.IPv6:
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_INET
}

// stateBits contains the bits of the states in nf_tables (NF_CT_STATE_BIT in
// linux/netfilter/nf_conntrack_common.h).
var stateBits = [...]uint32{
	rules.Invalid: 1, rules.Established: 1 << 1, rules.Related: 1 << 2, rules.New: 1 << 3,
	rules.Untracked: 1 << 6,
}

// StateBit returns the bit of a state in nf_tables. SNAT and DNAT are not states of nf_tables.
func StateBit(s rules.State) uint32 { return stateBits[s] }

// addMatch adds the expressions of a match. set refers to the set of its values, or is zero if the
// match needs no set.
func (x *expressions) addMatch(m rules.Match, set setRef) error {
	switch m := m.(type) {
	case rules.MatchInterface:
		key := expr.MetaKeyIIFNAME
		if m.Out {
			key = expr.MetaKeyOIFNAME
		}
		x.addMeta(key)
		if set.name != "" {
			x.addLookup(m.Not, set)
		} else {
			x.addCmp(m.Not, interfaceBytes(m.Names[0]))
		}
	case rules.MatchFamily:
		x.addFamily(m.Family)
	case rules.MatchAddr:
		x.addAddr(m, set)
	case rules.MatchProtocol:
		x.addMeta(expr.MetaKeyL4PROTO)
		if set.name != "" {
			x.addLookup(m.Not, set)
		} else {
			x.addCmp(m.Not, []byte{byte(m.Protocols[0])})
		}
	case rules.MatchPort:
		field := sourcePort
		if m.Side == rules.Destination {
			field = destinationPort
		}
		x.addPayload(field)
		if comparesEach(m) {
			for _, p := range m.Ports {
				x.addCmp(true, portBytes(p.First))
			}
			return nil
		}
		addRanges(x, m.Not, m.Ports, set, portBytes, portBytes)
	case rules.MatchTCPFlags:
		x.addPayload(tcpFlags)
		x.addBitwise([]byte{byte(m.Mask)}, []byte{0})
		x.addCmp(m.Not, []byte{byte(m.Value)})
	case rules.MatchOwner:
		key := expr.MetaKeySKUID
		if m.Group {
			key = expr.MetaKeySKGID
		}
		x.addMeta(key)
		if hasInterval(m.IDs) {
			x.addByteorder()
		}
		addRanges(x, m.Not, m.IDs, set, hostBytes, networkBytes)
	case rules.MatchCgroup:
		x.add(&expr.Socket{
			Key: expr.SocketKeyCgroupv2, Level: uint32(m.Level), Register: register,
		})
		x.addCmp(false, native.AppendUint64(nil, m.ID))
	case rules.MatchMark:
		if m.Conntrack {
			x.addCT(expr.CtKeyMARK)
		} else {
			x.addMeta(expr.MetaKeyMARK)
		}
		if m.Mask != ^uint32(0) {
			x.addBitwise(hostBytes(m.Mask), hostBytes(0))
		}
		x.addCmp(m.Not, hostBytes(m.Value))
	case rules.MatchState:
		var bits uint32
		for state, bit := range stateBits {
			if m.States.Has(rules.State(state)) {
				bits |= bit
			}
		}
		x.addCT(expr.CtKeySTATE)
		x.addBitwise(hostBytes(bits), hostBytes(0))
		x.addCmp(!m.Not, hostBytes(0))
	default:
		return fmt.Errorf("the nf_tables encoder does not support the match %s", m)
	}
	return nil
}

// addFamily adds the expressions that compare the family of the packet.
func (x *expressions) addFamily(f rules.Family) {
	x.addMeta(expr.MetaKeyNFPROTO)
	x.addCmp(false, []byte{nfproto(f)})
}

// addAddr adds the lookup of an address in a set or, without a set, its comparison with one range:
// a single address, the leading bytes of a prefix, a masked prefix, or an interval.
func (x *expressions) addAddr(m rules.MatchAddr, set setRef) {
	field := addrField(m.Family(), m.Side)
	if set.name != "" {
		x.addPayload(field)
		x.addLookup(m.Not, set)
		return
	}
	r := m.Ranges[0]
	first := r.From().AsSlice()
	p, isPrefix := r.Prefix()
	switch {
	case r.From() == r.To():
		x.addPayload(field)
		x.addCmp(m.Not, first)
	case isPrefix && p.Bits() > 0 && p.Bits()%8 == 0:
		field.length = uint32(p.Bits() / 8)
		x.addPayload(field)
		x.addCmp(m.Not, first[:field.length])
	case isPrefix && p.Bits() > 0:
		x.addPayload(field)
		x.addBitwise(net.CIDRMask(p.Bits(), 8*len(first)), make([]byte, len(first)))
		x.addCmp(m.Not, first)
	default:
		x.addPayload(field)
		x.addInterval(m.Not, first, r.To().AsSlice())
	}
}

// addRanges adds the lookup of the register in a set or, without a set, its comparison with the
// only range. encodeSingle encodes single numbers, and encodeBound the bounds of ranges.
func addRanges[T uint16 | uint32](
	x *expressions, negated bool, ranges []rules.Range[T], set setRef,
	encodeSingle, encodeBound func(T) []byte,
) {
	switch r := ranges[0]; {
	case set.name != "":
		x.addLookup(negated, set)
	case r.IsSingle():
		x.addCmp(negated, encodeSingle(r.First))
	default:
		x.addInterval(negated, encodeBound(r.First), encodeBound(r.Last))
	}
}
