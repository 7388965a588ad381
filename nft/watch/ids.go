package watch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/netns"
)

// ids are those that namespaces have in one of them. They are asked for by one goroutine at a time. A question is two system calls and
// leaves no garbage: each look at a pod adds its namespace, and thus asks.
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
	// The kernel refuses if the namespace has got one meanwhile, as by somebody who lists interfaces.
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
	answer, err := i.ask(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_FD, uint32(fd)})
	if id, ok := answer.nsid(); ok {
		return id, nil
	}
	return -1, err
}

// assign gives the namespace that a descriptor refers to an id that the kernel chooses.
func (i *ids) assign(fd int) error {
	const any32 = 1<<32 - 1 // -1
	_, err := i.ask(unix.RTM_NEWNSID, unix.NLM_F_ACK, attribute{unix.NETNSA_FD, uint32(fd)}, attribute{unix.NETNSA_NSID, any32})
	return err
}

// inUse reports whether a namespace has the id. Kernels before 4.20 do not tell; the answer is yes then.
func (i *ids) inUse(id int32) bool {
	_, err := i.ask(unix.RTM_GETNSID, 0, attribute{unix.NETNSA_NSID, uint32(id)})
	return !errors.Is(err, unix.ENOENT)
}

// An attribute of a question is a number.
type attribute struct {
	kind  uint16
	value uint32
}

// ask asks the kernel what it answers by one message. That is returned, valid until the next question.
func (i *ids) ask(kind, flags uint16, attributes ...attribute) (message, error) {
	if err := i.send(kind, flags, attributes); err != nil {
		return nil, err
	}
	return i.answer()
}

func (i *ids) send(kind, flags uint16, attributes []attribute) error {
	i.sequence++
	const rtgenmsg = 4 // with its padding
	question := i.buf[:bodyAt+rtgenmsg]
	clear(question)
	for _, a := range attributes {
		question = native.AppendUint16(question, unix.NLA_HDRLEN+4)
		question = native.AppendUint16(question, a.kind)
		question = native.AppendUint32(question, a.value)
	}
	native.PutUint32(question, uint32(len(question)))
	native.PutUint16(question[typeAt:], kind)
	native.PutUint16(question[flagsAt:], unix.NLM_F_REQUEST|flags)
	native.PutUint32(question[sequenceAt:], i.sequence)
	for {
		_, err := unix.Write(i.fd, question) // to the kernel, as no address says otherwise
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("write", err)
		}
	}
}

// answer reads what the kernel says to the last question.
func (i *ids) answer() (message, error) {
	for {
		n, from, err := unix.Recvfrom(i.fd, i.buf[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		m := message(i.buf[:n])
		sender, ok := from.(*unix.SockaddrNetlink)
		if !ok || sender.Pid != 0 || m.sequence() != i.sequence {
			continue // another process's, or to a question whose answer was given up
		}
		if m.kind() == unix.NLMSG_ERROR {
			return nil, m.errno()
		}
		return m, nil
	}
}
