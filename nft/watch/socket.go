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
