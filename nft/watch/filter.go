package watch

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Where fields are in a message: those of its header, and at the same place after that the table of
// a route (struct rtmsg) and the index of an interface (struct ifinfomsg, struct ifaddrmsg).
const (
	typeAt = 4
	inBody = unix.NLMSG_HDRLEN + 4
)

// newGeneration is the type of the message that ends each transaction which changes anything.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// lo is the index of the loopback interface of each namespace.
const lo = 1

// rulesFilter passes the ends of transactions. They come alone in a datagram.
func rulesFilter() []unix.SockFilter {
	return []unix.SockFilter{
		load16(typeAt),
		unlessEqual(network16(newGeneration), 1),
		pass, drop,
	}
}

// routesFilter passes what may be about policy routes, and the end of ids. Each comes alone in a
// datagram.
func routesFilter() []unix.SockFilter {
	return []unix.SockFilter{
		/*  0 */ load16(typeAt),
		/*  1 */ ifEqual(network16(unix.RTM_NEWRULE), 15),
		/*  2 */ ifEqual(network16(unix.RTM_DELRULE), 14),
		/*  3 */ ifEqual(network16(unix.RTM_DELNSID), 13),
		/*  4 */ ifEqual(network16(unix.RTM_NEWROUTE), 5),
		/*  5 */ ifEqual(network16(unix.RTM_DELROUTE), 4),
		/*  6 */ ifEqual(network16(unix.RTM_NEWLINK), 7),
		/*  7 */ ifEqual(network16(unix.RTM_DELLINK), 6),
		/*  8 */ ifEqual(network16(unix.RTM_DELADDR), 5),
		/*  9 */ drop,
		/* 10 */ {Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: inBody},
		/* 11 */ ifEqual(unix.RT_TABLE_MAIN, 6),
		/* 12 */ ifEqual(unix.RT_TABLE_LOCAL, 5),
		/* 13 */ pass,
		/* 14 */ {Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: inBody},
		/* 15 */ ifEqual(network32(lo), 1),
		/* 16 */ drop,
		/* 17 */ pass,
		/* 18 */ drop,
	}
}

var (
	pass = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1}
	drop = unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
)

func load16(at uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: at}
}

// ifEqual goes on after skip more instructions if what was loaded is n.
func ifEqual(n uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: n, Jt: skip}
}

func unlessEqual(n uint32, skip uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: n, Jf: skip}
}

// network16 is what a filter loads where the kernel has written n: loads are in network byte order,
// messages are not.
func network16(n uint16) uint32 {
	return uint32(binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n)))
}

func network32(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}
