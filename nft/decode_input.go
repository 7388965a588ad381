package nft

import (
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// inputsOf returns the inputs on which an expression may depend, other than its registers.
func (d *ruleDecoder) inputsOf(name string, a attributes) rules.Inputs {
	switch name {
	case "immediate", "bitwise", "byteorder", "cmp", "range", "lookup", "dynset", "numgen", "limit",
		"quota", "counter", "log", "last", "exthdr", "osf", "objref":
		return 0
	case "meta":
		return metaInputs(a.Number(unix.NFTA_META_KEY))
	case "ct":
		if a.Number(unix.NFTA_CT_KEY) == unix.NFT_CT_MARK {
			return rules.ConnectionInput | rules.ConntrackMarkInput
		}
		return rules.ConnectionInput
	case "payload":
		return d.payloadInputs(payload{
			a.Number(unix.NFTA_PAYLOAD_BASE), a.Number(unix.NFTA_PAYLOAD_OFFSET),
			a.Number(unix.NFTA_PAYLOAD_LEN),
		})
	case "fib":
		reads, flags := rules.HeaderInput, a.Number(unix.NFTA_FIB_FLAGS)
		if flags&unix.NFTA_FIB_F_MARK != 0 {
			reads |= rules.MarkInput
		}
		if flags&unix.NFTA_FIB_F_OIF != 0 {
			reads |= rules.InterfaceInput
		}
		return reads
	case "socket", "hash": // symhash reads addresses and ports
		return rules.HeaderInput
	case "match":
		return rules.AllInputs &^ xt.MatchIgnores(a.Text(unix.NFTA_MATCH_NAME))
	}
	return rules.AllInputs // the route among others, which the mark selects
}

// metaInputs returns the inputs on which a meta expression with the key depends.
func metaInputs(key uint32) rules.Inputs {
	switch key {
	case unix.NFT_META_MARK:
		return rules.MarkInput
	case unix.NFT_META_SKUID, unix.NFT_META_SKGID, unix.NFT_META_CGROUP:
		return rules.HeaderInput // tproxy assigns a socket
	case unix.NFT_META_OIF, unix.NFT_META_OIFNAME, unix.NFT_META_OIFTYPE, unix.NFT_META_OIFGROUP,
		nftMetaOIFKind:
		return rules.InterfaceInput
	case unix.NFT_META_RTCLASSID, nftMetaSecpath:
		return rules.AllInputs // of the route
	}
	return 0
}

// payloadInputs returns the inputs on which a part of the packet depends: NAT changes addresses,
// ports, identifiers of ICMP, and checksums, at these offsets in some protocol.
func (d *ruleDecoder) payloadInputs(p payload) rules.Inputs {
	var unchanged [2]uint32 // the first offset, and the one after the last
	switch p.base {
	case unix.NFT_PAYLOAD_LL_HEADER:
		return 0
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		unchanged[1] = 8 // the source of IPv6
		if d.family == rules.IPv4 {
			unchanged[1] = 10 // the checksum
		}
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		unchanged = [2]uint32{12, 16} // after the checksum of SCTP, before that of TCP
	}
	if p.offset >= unchanged[0] && uint64(p.offset)+uint64(p.length) <= uint64(unchanged[1]) {
		return 0
	}
	return rules.HeaderInput
}
