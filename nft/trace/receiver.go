package trace

import (
	"cmp"
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/socket"
)

// receiveBuffer is the size of the receive buffer in bytes. The kernel doubles it, and a message
// takes somewhat more than 1 KiB: the buffer holds more than 10,000 messages.
const receiveBuffer = 8 << 20

// A Receiver is a netlink socket of netfilter that counts the messages that the kernel drops.
type Receiver struct {
	socket.Socket
	buffer []byte
	drops  uint32
}

// NewReceiver returns a receiver in the namespace of the thread, with a port id that the kernel
// chooses. The size of the receive buffer is in bytes; 0 means a buffer for about 10,000 messages.
func NewReceiver(size int) (*Receiver, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	r := &Receiver{Socket: socket.FromFD(fd), buffer: make([]byte, 64<<10)}
	nlmsg.SetReceiveBuffer(fd, cmp.Or(size, receiveBuffer))
	if err := nlmsg.Connect(fd); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// maxDatagrams limits a call of Drain, because processes can send datagrams faster than Drain reads
// them.
const maxDatagrams = 4096

// Drain reads up to 4,096 datagrams and calls add for each datagram of the kernel. If the queue is
// empty, it returns EAGAIN. lost is the number of messages that the kernel dropped because the
// buffer was full. Before Linux 4.12 the number is a lower bound.
func (r *Receiver) Drain(fd int, add func(datagram []byte)) (lost uint32, err error) {
	for range maxDatagrams {
		n, from, err := unix.Recvfrom(fd, r.buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.ENOBUFS):
			drops := droppedMessages(fd)
			lost += max(1, drops-r.drops)
			r.drops = drops
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return lost, err
		default:
			// Ignore messages of processes, which can send to the groups too.
			if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid == 0 {
				add(r.buffer[:n])
			}
		}
	}
	return lost, nil
}

// droppedMessages returns the number of messages that the kernel has dropped since the socket was
// opened because the receive buffer was full, or 0 before Linux 4.12.
func droppedMessages(fd int) uint32 {
	var info [unix.SK_MEMINFO_VARS]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return info[unix.SK_MEMINFO_DROPS]
}
