package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// Offsets of fields in a message.
const (
	typeOffset = 4
	// tableOffset is the offset of rtm_table (struct rtmsg) in a message, and indexOffset the
	// offset of ifi_index (struct ifinfomsg) or ifa_index (struct ifaddrmsg).
	tableOffset = unix.NLMSG_HDRLEN + 4
	indexOffset = unix.NLMSG_HDRLEN + 4
)

// newGeneration is the type of the last message of each transaction with a change.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// rulesFilter accepts the last message of each transaction. It reads only the first message of a
// datagram, which suffices, because the kernel sends the last message of a transaction in a
// separate datagram.
func rulesFilter() []unix.SockFilter {
	return []unix.SockFilter{
		load16(typeOffset),
		ifNotEqual(networkOrder16(newGeneration), 1),
		accept, drop,
	}
}

// routesFilter accepts messages about
//   - policy rules,
//   - routes in tables other than main and local,
//   - the interface lo,
//   - addresses removed from lo,
//   - removed namespace ids.
//
// The kernel sends each of these messages in a separate datagram.
func routesFilter() []unix.SockFilter {
	return []unix.SockFilter{
		/*  0 */ load16(typeOffset),
		/*  1 */ ifEqual(networkOrder16(unix.RTM_NEWRULE), 15),
		/*  2 */ ifEqual(networkOrder16(unix.RTM_DELRULE), 14),
		/*  3 */ ifEqual(networkOrder16(unix.RTM_DELNSID), 13),
		/*  4 */ ifEqual(networkOrder16(unix.RTM_NEWROUTE), 5),
		/*  5 */ ifEqual(networkOrder16(unix.RTM_DELROUTE), 4),
		/*  6 */ ifEqual(networkOrder16(unix.RTM_NEWLINK), 7),
		/*  7 */ ifEqual(networkOrder16(unix.RTM_DELLINK), 6),
		/*  8 */ ifEqual(networkOrder16(unix.RTM_DELADDR), 5),
		/*  9 */ drop,
		/* 10 */ {Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: tableOffset},
		/* 11 */ ifEqual(unix.RT_TABLE_MAIN, 6),
		/* 12 */ ifEqual(unix.RT_TABLE_LOCAL, 5),
		/* 13 */ accept,
		/* 14 */ {Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: indexOffset},
		/* 15 */ ifEqual(networkOrder32(netns.LoopbackIndex), 1),
		/* 16 */ drop,
		/* 17 */ accept,
		/* 18 */ drop,
	}
}

// accept and drop end a filter. accept delivers the datagram, and drop discards it.
var (
	accept = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1}
	drop   = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
)

// load16 loads a field of 16 bits.
func load16(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: offset}
}

// ifEqual skips the given number of instructions if the loaded value is n.
func ifEqual(n uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: n, Jt: skip}
}

// ifNotEqual skips the given number of instructions if the loaded value is not n.
func ifNotEqual(n uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: n, Jf: skip}
}

// networkOrder16 returns the value that a filter loads from a field that contains n: loads convert
// from network byte order, but the fields are in host byte order.
func networkOrder16(n uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n)))
}

// networkOrder32 is like [networkOrder16], for a field of 32 bits.
func networkOrder32(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}
