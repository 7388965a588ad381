package watch

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/socket"
)

// receiveBuffer is for messages that wait, of which each takes about 1 KiB of it. The kernel
// doubles the number.
const receiveBuffer = 1 << 20

// A group is one of the kernel's multicast groups of a protocol.
type group int

// listen opens a socket of a protocol in the thread's namespace that hears of all namespaces what
// passes the filter.
func listen(protocol int, filter []unix.SockFilter, groups ...group) (socket.Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return socket.Socket{}, os.NewSyscallError("socket", err)
	}
	if err := subscribe(fd, filter, groups); err != nil {
		_ = unix.Close(fd)
		return socket.Socket{}, err
	}
	return socket.Of(fd), nil
}

func subscribe(fd int, filter []unix.SockFilter, groups []group) error {
	// Before the groups: nothing shall arrive that did not pass.
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program); err != nil {
		return fmt.Errorf("attach the filter: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
		return fmt.Errorf("hear of all namespaces: %w", needs(err, "CAP_NET_BROADCAST"))
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // as much as net.core.rmem_max allows
	}
	if err := bind(fd); err != nil {
		return err
	}
	for _, g := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(g)); err != nil {
			return fmt.Errorf("join group %d: %w", g, needs(err, "CAP_NET_ADMIN"))
		}
	}
	return nil
}

// bind gives the socket a port id that nobody can know; see the package's text.
func bind(fd int) error {
	for {
		var id [4]byte
		_, _ = rand.Read(id[:]) // never fails
		err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Pid: binary.NativeEndian.Uint32(id[:]) | 1<<31})
		if !errors.Is(err, unix.EADDRINUSE) {
			return os.NewSyscallError("bind", err)
		}
	}
}

func needs(err error, capability string) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (needs %s)", err, capability)
	}
	return err
}
