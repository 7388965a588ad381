package watch

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/nft/socket"
)

// receiveBuffer is the size of the receive buffer in bytes. The kernel doubles it, and a message
// takes 832 bytes (measured on Linux 6.18): the buffer holds 2500 messages.
const receiveBuffer = 1 << 20

// A group is one of the kernel's multicast groups of a protocol.
type group int

// listen opens a socket of a protocol in the thread's namespace. The socket receives messages of
// the groups from all namespaces, if the filter accepts them.
func listen(protocol int, filter []unix.SockFilter, groups ...group) (socket.Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		protocol)
	if err != nil {
		return socket.Socket{}, os.NewSyscallError("socket", err)
	}
	if err := subscribe(fd, filter, groups); err != nil {
		_ = unix.Close(fd)
		return socket.Socket{}, err
	}
	return socket.FromFD(fd), nil
}

// subscribe prepares a socket to receive the messages of the groups from all namespaces.
func subscribe(fd int, filter []unix.SockFilter, groups []group) error {
	// Attach the filter before joining the groups, so that no unfiltered message arrives.
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&program); err != nil {
		return fmt.Errorf("attach the filter: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID,
		1); err != nil {
		return fmt.Errorf("listen to all namespaces: %w", withCapability(err, "CAP_NET_BROADCAST"))
	}
	nlmsg.SetReceiveBuffer(fd, receiveBuffer)
	if err := bind(fd); err != nil {
		return err
	}
	for _, g := range groups {
		err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g))
		if err != nil {
			return fmt.Errorf("join multicast group %d: %w", g,
				withCapability(err, "CAP_NET_ADMIN"))
		}
	}
	return nil
}

// bind binds the socket to a random port id, which pods cannot guess. See the package
// documentation. The highest bit is set, because the kernel prefers process ids as port ids.
func bind(fd int) error {
	for {
		var id [4]byte
		_, _ = rand.Read(id[:]) // never fails
		port := binary.NativeEndian.Uint32(id[:]) | 1<<31
		err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: port})
		if !errors.Is(err, unix.EADDRINUSE) {
			return os.NewSyscallError("bind", err)
		}
	}
}

// withCapability adds the name of the missing capability to EPERM.
func withCapability(err error, capability string) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (needs %s)", err, capability)
	}
	return err
}

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
