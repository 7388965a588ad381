package nft

import (
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// Where the fields lie in their headers: base, offset and length (RFC 791, 8200, 9293).
type payload struct{ base, offset, length uint32 }

var (
	sourcePort      = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2}
	destinationPort = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}
	tcpFlags        = payload{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1}
)

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

// nfproto is the kernel's number of a family.
func nfproto(f rules.Family) uint8 {
	switch f {
	case rules.IPv4:
		return unix.NFPROTO_IPV4
	case rules.IPv6:
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_INET
}

// stateBits are nf_tables' bits of the states (linux/netfilter/nf_conntrack_common.h, NF_CT_STATE_BIT).
var stateBits = [...]uint32{
	rules.Invalid: 1, rules.Established: 1 << 1, rules.Related: 1 << 2, rules.New: 1 << 3, rules.Untracked: 1 << 6,
}

// match writes the expressions of a match. Sets must have been written before.
func (e *encoder) match(m rules.Match, set setRef) error {
	switch m := m.(type) {
	case rules.MatchInterface:
		key := uint32(unix.NFT_META_IIFNAME)
		if m.Out {
			key = unix.NFT_META_OIFNAME
		}
		e.meta(key)
		if set.name != "" {
			e.lookup(m.Not, set)
		} else {
			e.cmp(m.Not, interfaceKey(m.Names[0]))
		}
	case rules.MatchFamily:
		e.family(m.Family)
	case rules.MatchAddr:
		e.addr(m, set)
	case rules.MatchProtocol:
		e.meta(unix.NFT_META_L4PROTO)
		if set.name != "" {
			e.lookup(m.Not, set)
		} else {
			e.cmp(m.Not, []byte{byte(m.Protocols[0])})
		}
	case rules.MatchPort:
		field := sourcePort
		if m.Side == rules.Destination {
			field = destinationPort
		}
		e.payload(field)
		if comparesEach(m) {
			for _, p := range m.Ports {
				e.cmp(true, portKey(p.First))
			}
			return nil
		}
		matchRange(e, m.Not, m.Ports, set, portKey, portKey)
	case rules.MatchTCPFlags:
		e.payload(tcpFlags)
		e.bitwise([]byte{byte(m.Mask)}, []byte{0})
		e.cmp(m.Not, []byte{byte(m.Value)})
	case rules.MatchOwner:
		key := uint32(unix.NFT_META_SKUID)
		if m.Group {
			key = unix.NFT_META_SKGID
		}
		e.meta(key)
		if hasInterval(m.IDs) {
			e.toNetworkOrder()
		}
		matchRange(e, m.Not, m.IDs, set, hostKey, networkKey)
	case rules.MatchMark:
		if m.Conntrack {
			e.ct(unix.NFT_CT_MARK)
		} else {
			e.meta(unix.NFT_META_MARK)
		}
		if m.Mask != ^uint32(0) {
			e.bitwise(hostKey(m.Mask), hostKey(0))
		}
		e.cmp(m.Not, hostKey(m.Value))
	case rules.MatchState:
		var bits uint32
		for state, bit := range stateBits {
			if m.States.Has(rules.State(state)) {
				bits |= bit
			}
		}
		e.ct(unix.NFT_CT_STATE)
		e.bitwise(hostKey(bits), hostKey(0))
		e.cmp(!m.Not, hostKey(0))
	default:
		return fmt.Errorf("the match %s cannot be written in nf_tables", m)
	}
	return nil
}

func (e *encoder) family(f rules.Family) {
	e.meta(unix.NFT_META_NFPROTO)
	e.cmp(false, []byte{nfproto(f)})
}

func (e *encoder) addr(m rules.MatchAddr, set setRef) {
	field := addrField(m.Family(), m.Side)
	if set.name != "" {
		e.payload(field)
		e.lookup(m.Not, set)
		return
	}
	r := m.Ranges[0]
	first := addrKey(r.From())
	p, isPrefix := r.Prefix()
	switch {
	case r.From() == r.To():
		e.payload(field)
		e.cmp(m.Not, first)
	case isPrefix && p.Bits() > 0 && p.Bits()%8 == 0:
		field.length = uint32(p.Bits() / 8)
		e.payload(field)
		e.cmp(m.Not, first[:field.length])
	case isPrefix && p.Bits() > 0:
		e.payload(field)
		e.bitwise(prefixMask(p), make([]byte, len(first)))
		e.cmp(m.Not, first)
	default:
		e.payload(field)
		e.interval(m.Not, first, addrKey(r.To()))
	}
}

func prefixMask(p netip.Prefix) []byte {
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return mask
}

// matchRange compares the register with one value or one range, or looks it up in a set. Single numbers are compared as single
// has them, intervals as interval has them.
func matchRange[T uint16 | uint32](e *encoder, negated bool, values []rules.Range[T], set setRef, single, interval func(T) []byte) {
	switch v := values[0]; {
	case set.name != "":
		e.lookup(negated, set)
	case v.IsSingle():
		e.cmp(negated, single(v.First))
	default:
		e.interval(negated, interval(v.First), interval(v.Last))
	}
}

// action writes the expressions of an action.
func (e *encoder) action(a rules.Action) error {
	switch a := a.(type) {
	case rules.Verdict:
		e.verdict([...]int32{rules.Accept: 1, rules.Drop: 0, rules.Return: unix.NFT_RETURN}[a], "")
	case rules.Jump:
		code := int32(unix.NFT_JUMP)
		if a.Goto {
			code = unix.NFT_GOTO
		}
		e.verdict(code, a.Chain)
	case rules.RedirectTo:
		e.immediate(portKey(a.Port))
		e.expression("redir", func() {
			e.number(unix.NFTA_REDIR_REG_PROTO_MIN, register)
			e.number(unix.NFTA_REDIR_REG_PROTO_MAX, register)
			e.number(unix.NFTA_REDIR_FLAGS, natRangeProtoSpecified)
		})
	case rules.TProxy:
		e.immediate(portKey(a.Port))
		e.expression("tproxy", func() {
			e.number(nftaTProxyFamily, e.tproxyFamily())
			e.number(nftaTProxyRegPort, register)
		})
	case rules.SetMark:
		if a.Mask == ^uint32(0) {
			e.immediate(hostKey(a.Value))
		} else {
			e.meta(unix.NFT_META_MARK)
			e.bitwise(hostKey(^a.Mask), hostKey(a.Value&a.Mask))
		}
		e.setMeta(unix.NFT_META_MARK)
	case rules.SaveMark:
		e.meta(unix.NFT_META_MARK)
		e.setCT(unix.NFT_CT_MARK)
	case rules.RestoreMark:
		e.ct(unix.NFT_CT_MARK)
		e.setMeta(unix.NFT_META_MARK)
	case rules.SetZone:
		e.immediate(native.AppendUint16(nil, a.Zone))
		e.setCT(unix.NFT_CT_ZONE)
	case rules.Count:
		e.expression("counter", func() {})
	default:
		return fmt.Errorf("the action %s cannot be written in nf_tables", a)
	}
	return nil
}

// tproxyFamily is the family of sockets that tproxy looks for: in an inet table both.
func (e *encoder) tproxyFamily() uint32 {
	if e.table.Family == rules.Inet {
		return unix.NFPROTO_UNSPEC
	}
	return uint32(nfproto(e.table.Family))
}
