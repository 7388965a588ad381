package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/xt"
	"github.com/sluice-mesh/sluice/rules"
)

// This file determines the inputs on which the value of an expression may depend, other than its
// registers. Expressions and keys that are not listed may depend on all inputs. The comments name
// functions and files of Linux 6.18.

// expressionInputs returns the inputs on which an expression may depend, other than its registers.
func (d *ruleDecoder) expressionInputs(name string, a attributes) rules.Inputs {
	switch name {
	case "immediate", "bitwise", "byteorder", "cmp", "range", "lookup", "dynset":
		return 0 // registers, constants and sets
	case "numgen":
		return 0 // a random number, or a count of the evaluations
	case "counter", "log", "last":
		return 0 // no condition
	case "objref":
		return 0 // the object is not read; see decodeObjref
	case "limit":
		if a.Number(unix.NFTA_LIMIT_TYPE) == unix.NFT_LIMIT_PKTS {
			return 0 // the time, and a count
		}
		return rules.ContentsInput // the length of the packet
	case "quota":
		return rules.ContentsInput
	case "meta":
		return metaInputs(a.Number(unix.NFTA_META_KEY))
	case "ct":
		return ctInputs(a.Number(unix.NFTA_CT_KEY))
	case "payload":
		return d.payloadInputs(payload{
			a.Number(unix.NFTA_PAYLOAD_BASE), a.Number(unix.NFTA_PAYLOAD_OFFSET),
			a.Number(unix.NFTA_PAYLOAD_LEN),
		})
	case "exthdr": // extension headers, options of TCP and IPv4, and parts of SCTP and DCCP
		return rules.ContentsInput
	case "fib":
		return fibInputs(a.Number(unix.NFTA_FIB_FLAGS))
	case "socket":
		// The expression uses the socket that tproxy has assigned, or looks up a socket by the
		// addresses of the packet or, for replies, of the connection (nf_sk_lookup_slow_v4 in
		// net/ipv4/netfilter/nf_socket_ipv4.c).
		if a.Number(expr.NFTA_SOCKET_KEY) <= expr.NFT_SOCKET_CGROUPV2 {
			return rules.HeaderInput | rules.ConnectionInput
		}
	case "hash":
		switch a.Number(unix.NFTA_HASH_TYPE) {
		case unix.NFT_HASH_JENKINS:
			return 0
		case unix.NFT_HASH_SYM:
			return rules.HeaderInput // addresses and ports
		}
	case "osf":
		// The expression compares the length, the options, the window and the TTL of a SYN. The
		// source address decides whether the TTL is compared exactly (nf_osf_ttl in
		// net/netfilter/nfnetlink_osf.c).
		return rules.HeaderInput
	case "match":
		return rules.AllInputs &^ xt.MatchIgnores(a.Text(unix.NFTA_MATCH_NAME))
	}
	return rules.AllInputs // rt, tunnel, xfrm and inner among others
}

// metaInputs returns the inputs on which a meta expression with the key depends (nft_meta_get_eval
// in net/netfilter/nft_meta.c).
func metaInputs(key uint32) rules.Inputs {
	switch key {
	case unix.NFT_META_LEN:
		return rules.ContentsInput
	case unix.NFT_META_PROTOCOL, unix.NFT_META_NFPROTO, unix.NFT_META_L4PROTO:
		return 0 // NAT keeps the protocols
	case unix.NFT_META_IIF, unix.NFT_META_IIFNAME, unix.NFT_META_IIFGROUP, nftMetaIIFKind:
		return 0 // the hook's incoming interface (nft_in), which rules do not change
	case unix.NFT_META_CPU, unix.NFT_META_PRANDOM, nftMetaTimeNs, nftMetaTimeDay, nftMetaTimeHour:
		return 0 // not properties of the packet
	case unix.NFT_META_MARK:
		return rules.MarkInput
	case unix.NFT_META_PRIORITY, unix.NFT_META_SECMARK:
		return rules.StateInput // rules can set these fields
	case unix.NFT_META_PKTTYPE:
		// The type of a multicast packet that the host sends to itself depends on the destination
		// (nft_meta_get_eval_pkttype_lo).
		return rules.HeaderInput
	case unix.NFT_META_SKUID, unix.NFT_META_SKGID, unix.NFT_META_CGROUP:
		return rules.HeaderInput // tproxy assigns a socket
	case unix.NFT_META_OIF, unix.NFT_META_OIFNAME, unix.NFT_META_OIFTYPE, unix.NFT_META_OIFGROUP,
		nftMetaOIFKind,
		// IIFTYPE is the type of the packet's device, which at postrouting is the outgoing one.
		unix.NFT_META_IIFTYPE:
		return rules.InterfaceInput
	}
	return rules.AllInputs // for example rtclassid and ipsec, which depend on the route
}

// ctInputs returns the inputs on which a ct expression with the key depends (nft_ct_get_eval in
// net/netfilter/nft_ct.c).
func ctInputs(key uint32) rules.Inputs {
	switch key {
	case unix.NFT_CT_STATUS:
		return rules.ConnectionInput | rules.NATInput
	case unix.NFT_CT_STATE, unix.NFT_CT_DIRECTION, unix.NFT_CT_L3PROTOCOL,
		unix.NFT_CT_PROTOCOL, unix.NFT_CT_SRC, unix.NFT_CT_DST, unix.NFT_CT_PROTO_SRC,
		unix.NFT_CT_PROTO_DST, unix.NFT_CT_SRC_IP, unix.NFT_CT_DST_IP, unix.NFT_CT_SRC_IP6,
		unix.NFT_CT_DST_IP6, unix.NFT_CT_ZONE, unix.NFT_CT_HELPER, unix.NFT_CT_ID,
		unix.NFT_CT_PKTS, unix.NFT_CT_BYTES, unix.NFT_CT_AVGPKT:
		return rules.ConnectionInput
	case unix.NFT_CT_MARK:
		return rules.ConnectionInput | rules.ConntrackMarkInput
	case unix.NFT_CT_LABELS, unix.NFT_CT_SECMARK, unix.NFT_CT_EXPIRATION:
		return rules.ConnectionInput | rules.StateInput // rules can set these fields
	}
	return rules.AllInputs
}

// fibInputs returns the inputs on which a lookup of a route depends (nft_fib4_eval in
// net/ipv4/netfilter/nft_fib_ipv4.c, and nft_fib6_eval in net/ipv6/netfilter/nft_fib_ipv6.c).
func fibInputs(flags uint32) rules.Inputs {
	const known = unix.NFTA_FIB_F_SADDR | unix.NFTA_FIB_F_DADDR | unix.NFTA_FIB_F_MARK |
		unix.NFTA_FIB_F_IIF | unix.NFTA_FIB_F_OIF | unix.NFTA_FIB_F_PRESENT
	if flags&^known != 0 {
		return rules.AllInputs
	}
	reads := rules.HeaderInput // addresses, and the existence of a socket
	if flags&unix.NFTA_FIB_F_MARK != 0 {
		reads |= rules.MarkInput
	}
	if flags&unix.NFTA_FIB_F_OIF != 0 {
		reads |= rules.InterfaceInput
	}
	return reads
}

// payloadInputs returns the inputs on which a part of the packet depends. NAT changes addresses,
// ports, ICMP identifiers and checksums. Their offsets depend on the protocol. If the family is not
// known, a part is independent of NAT only if it is independent both in IPv4 and in IPv6.
func (d *ruleDecoder) payloadInputs(p payload) rules.Inputs {
	within := func(first, end uint64) bool {
		return uint64(p.offset) >= first && uint64(p.offset)+uint64(p.length) <= end
	}
	// natStart is the first offset in the network header that NAT changes: the checksum of IPv4, or
	// the source address of IPv6. lengthStart is the offset of the length field, and lengthEnd the
	// offset after it. If the family is not known, natStart is the smaller of the two offsets, and
	// the length field covers the fields of both families.
	natStart, lengthStart, lengthEnd := uint64(8), uint64(2), uint64(6)
	switch d.family {
	case rules.IPv4:
		natStart, lengthEnd = 10, 4
	case rules.IPv6:
		lengthStart = 4
	}
	switch {
	case p.base == unix.NFT_PAYLOAD_LL_HEADER:
		return 0
	case p.base == unix.NFT_PAYLOAD_NETWORK_HEADER && (within(0, lengthStart) ||
		within(lengthEnd, natStart)):
		return 0
	case p.base == unix.NFT_PAYLOAD_NETWORK_HEADER && within(0, natStart):
		return rules.ContentsInput
	case p.base == unix.NFT_PAYLOAD_TRANSPORT_HEADER && d.limitedTo(rules.TCP) && within(12, 16):
		return 0 // data offset, flags and window, after the sequence numbers
	}
	return rules.HeaderInput | rules.ContentsInput
}
