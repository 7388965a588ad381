package watch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// An idClient reads and assigns the namespace ids (nsid) of other namespaces in the namespace of
// its socket. It must be used by one goroutine at a time. Every check of a pod calls [Watcher.Add],
// which sends a request. Therefore a request takes only two system calls and no allocations.
type idClient struct {
	fd       int // -1 when closed
	sequence uint32
	buf      [1 << 10]byte // for a request and its answer; each has less than 100 bytes
}

// openIDClient opens a client in the namespace of the thread.
func openIDClient() (*idClient, error) {
	fd, err := nlmsg.Open(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &idClient{fd: fd}, nil
}

// close closes the socket. Later calls of ensure return [os.ErrClosed].
func (c *idClient) close() {
	_ = unix.Close(c.fd)
	c.fd = -1
}

// ensure returns the id of a namespace, and assigns one if the namespace has none.
func (c *idClient) ensure(ns *netns.NS) (int32, error) {
	fd := ns.FD()
	if ns == nil {
		own, err := netns.Open("/proc/thread-self/ns/net")
		if err != nil {
			return 0, err
		}
		defer own.Close() //nolint:errcheck // the descriptor was only read
		fd = own.FD()
	}
	if fd < 0 || c.fd < 0 {
		return 0, os.ErrClosed
	}
	id, err := c.get(fd)
	if err != nil || id >= 0 {
		return id, err
	}
	// EEXIST: the namespace has received an id in the meantime, for example because a process has
	// listed the interfaces.
	if err := c.assign(fd); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, withCapability(err, "CAP_NET_ADMIN")
	}
	id, err = c.get(fd)
	if err == nil && id < 0 {
		err = errors.New("the kernel assigned none")
	}
	return id, err
}

// get returns the id of the namespace of a descriptor, or -1 if it has none.
func (c *idClient) get(fd int) (int32, error) {
	return c.request(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_FD, uint32(fd)})
}

// assign makes the kernel assign an id to the namespace of a descriptor.
func (c *idClient) assign(fd int) error {
	const anyID = 1<<32 - 1 // -1: the kernel chooses the id
	_, err := c.request(unix.RTM_NEWNSID, unix.NLM_F_ACK,
		attribute{unix.NETNSA_FD, uint32(fd)}, attribute{unix.NETNSA_NSID, anyID})
	return err
}

// inUse reports whether a namespace has the id. Before Linux 4.20 it always returns true, because
// the kernel cannot look up an id.
func (c *idClient) inUse(id int32) bool {
	_, err := c.request(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_NSID, uint32(id)})
	return !errors.Is(err, unix.ENOENT)
}

// attribute is a numeric attribute of a request.
type attribute struct {
	kind  uint16
	value uint32
}

// request sends a request and returns the id in the answer, or -1 if the answer has none.
func (c *idClient) request(kind, flags uint16, attributes ...attribute) (id int32, err error) {
	id = -1
	request := c.encodeRequest(kind, flags, attributes)
	_, err = nlmsg.Exchange(c.fd, c.buf[:], request, func(m nlmsg.Message) error {
		if found, ok := nsid(m.Body); ok {
			id = found
		}
		return nil
	})
	return id, err
}

// encodeRequest encodes a request with the next sequence number into the buffer.
func (c *idClient) encodeRequest(kind, flags uint16, attributes []attribute) []byte {
	c.sequence++
	request := nlmsg.AppendHeader(c.buf[:0], kind, flags, c.sequence)
	request = append(request, 0, 0, 0, 0) // struct rtgenmsg with its padding
	for _, a := range attributes {
		request = native.AppendUint16(request, unix.NLA_HDRLEN+4)
		request = native.AppendUint16(request, a.kind)
		request = native.AppendUint32(request, a.value)
	}
	nlmsg.SetLength(request)
	return request
}
