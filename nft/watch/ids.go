package watch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// ids are those that namespaces have in one of them. They are asked for by one goroutine at a time.
// A question is two system calls and leaves no garbage: each look at a pod adds its namespace, and
// thus asks.
type ids struct {
	fd       int // -1 when closed
	sequence uint32
	buf      [1 << 10]byte // for a question, and then for its answer: each has less than 100 bytes
}

// answerTime bounds the wait for the kernel, which has always answered when a question is sent.
var answerTime = unix.Timeval{Sec: 10}

// openIDs returns the ids in the thread's namespace.
func openIDs() (*ids, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &answerTime); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return &ids{fd: fd}, nil
}

func (i *ids) close() {
	_ = unix.Close(i.fd)
	i.fd = -1
}

// of returns the id of a namespace, which gets one if it has none.
func (i *ids) of(ns *netns.NS) (int32, error) {
	fd := ns.FD()
	if ns == nil {
		own, err := netns.Open("/proc/thread-self/ns/net")
		if err != nil {
			return 0, err
		}
		defer own.Close() //nolint:errcheck // nothing was done with it
		fd = own.FD()
	}
	if fd < 0 || i.fd < 0 {
		return 0, os.ErrClosed
	}
	id, err := i.get(fd)
	if err != nil || id >= 0 {
		return id, err
	}
	// The kernel refuses if the namespace has got one meanwhile, as by somebody who lists
	// interfaces.
	if err := i.assign(fd); err != nil && !errors.Is(err, unix.EEXIST) {
		return 0, needs(err, "CAP_NET_ADMIN")
	}
	id, err = i.get(fd)
	if err == nil && id < 0 {
		err = errors.New("it got none")
	}
	return id, err
}

// get returns the id of the namespace that a descriptor refers to, -1 if it has none.
func (i *ids) get(fd int) (int32, error) {
	return i.ask(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_FD, uint32(fd)})
}

// assign gives the namespace that a descriptor refers to an id that the kernel chooses.
func (i *ids) assign(fd int) error {
	const any32 = 1<<32 - 1 // -1
	_, err := i.ask(unix.RTM_NEWNSID, unix.NLM_F_ACK, attribute{unix.NETNSA_FD, uint32(fd)}, attribute{unix.NETNSA_NSID, any32})
	return err
}

// inUse reports whether a namespace has the id. Kernels before 4.20 do not tell; the answer is yes
// then.
func (i *ids) inUse(id int32) bool {
	_, err := i.ask(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_NSID, uint32(id)})
	return !errors.Is(err, unix.ENOENT)
}

// An attribute of a question is a number.
type attribute struct {
	kind  uint16
	value uint32
}

// ask sends a request, and returns the id in the answer, -1 if it has none.
func (i *ids) ask(kind, flags uint16, attributes ...attribute) (id int32, err error) {
	id = -1
	request := i.request(kind, flags, attributes)
	_, err = nlmsg.Exchange(i.fd, i.buf[:], request, func(m nlmsg.Message) error {
		if found, ok := nsid(m.Body); ok {
			id = found
		}
		return nil
	})
	return id, err
}

// request writes the next request into the buffer.
func (i *ids) request(kind, flags uint16, attributes []attribute) []byte {
	i.sequence++
	request := nlmsg.AppendHeader(i.buf[:0], kind, flags, i.sequence)
	request = append(request, 0, 0, 0, 0) // struct rtgenmsg with its padding
	for _, a := range attributes {
		request = native.AppendUint16(request, unix.NLA_HDRLEN+4)
		request = native.AppendUint16(request, a.kind)
		request = native.AppendUint32(request, a.value)
	}
	nlmsg.SetLength(request)
	return request
}
