package route

import (
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
)

// A conn is a socket for requests about routing, with a receive buffer. It passes each message of
// an answer to the caller while it receives the answer, so that the caller can limit the memory for
// the objects of a namespace. Package netlink reads the entire answer first, and does not decode
// the action and the newer selectors of policy rules, nor most encapsulations of routes.
type conn struct {
	fd  int
	buf *[bufferSize]byte
}

// bufferSize is larger than the datagrams of a dump (NLMSG_GOODSIZE).
const bufferSize = 8 << 10

// buffers reuses buffers: an audit of a node makes many fast checks in sequence.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// openConn opens a conn in the namespace of the thread. The caller must close it.
func openConn() (conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_ROUTE)
	if err != nil {
		return conn{}, err
	}
	if err := nlmsg.Connect(fd); err != nil {
		_ = unix.Close(fd)
		return conn{}, err
	}
	return conn{fd, buffers.Get().(*[bufferSize]byte)}, nil
}

// checkStrictly makes the kernel list only the routes of the requested table. Linux 4.19 and older
// do not have the option, and list the routes of all tables.
func (c conn) checkStrictly() {
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1)
}

// close closes the socket and releases the buffer.
func (c conn) close() {
	_ = unix.Close(c.fd)
	buffers.Put(c.buf)
}

// exchange sends requests, and calls visit for each message of the answers. The socket is
// non-blocking: the first part of an answer is available as soon as the request was sent, and each
// read makes the kernel produce the next part. If the listed objects changed during a dump, the
// error is [netlink.ErrDumpInterrupted]. After an error of visit the conn can only be closed.
func (c conn) exchange(request []byte, visit func(nlmsg.Message) error) error {
	interrupted, err := nlmsg.Exchange(c.fd, c.buf[:], request, visit)
	if err == nil && interrupted {
		return netlink.ErrDumpInterrupted
	}
	return err
}
