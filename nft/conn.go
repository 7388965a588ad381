package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// conn is a netlink socket that belongs to a network namespace, wherever its user runs. It is used
// by one goroutine at a time.
type conn struct {
	fd int
	// requests counts the requests. Their sequence numbers are greater than the numbers of a
	// transaction's messages.
	requests uint32
	// lastGeneration is the lower half of the ruleset's generation when the last answer was given.
	lastGeneration uint16
	// most is how many bytes of rules are read; maxReadSize if 0.
	most int
}

// defaultSendBuffer is what a socket may send at once by default, less than net.core.wmem_default
// (212992).
const defaultSendBuffer = 200 << 10

// firstRequest is the sequence number of the first request.
const firstRequest = 1 << 31

// replyTimeout bounds the wait for the kernel, which has always answered when the request returns.
var replyTimeout = unix.Timeval{Sec: 10}

// dial opens a socket in the namespace of the thread.
func dial() (*conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, &UnsupportedError{Feature: FeatureNetlink, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open a netfilter socket: %w", err)
	}
	c := &conn{fd: fd}
	// Explanations where the kernel has them, and without the request that they are about: both
	// since Linux 4.12.
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	err = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &replyTimeout)
	if err != nil {
		c.close()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return c, nil
}

// close closes the socket. After a transaction that deletes it waits for the kernel to free what
// was deleted: 8 to 20 ms.
func (c *conn) close() { _ = unix.Close(c.fd) }

// send writes a whole batch or request.
func (c *conn) send(buf []byte) error {
	enlarged := len(buf) > defaultSendBuffer
	if enlarged {
		c.enlarge(len(buf))
	}
	err := nlmsg.Send(c.fd, buf)
	if errors.Is(err, unix.EMSGSIZE) && !enlarged { // net.core.wmem_default is smaller than usual
		c.enlarge(len(buf))
		err = nlmsg.Send(c.fd, buf)
	}
	return err
}

// enlarge lets the socket send so many bytes at once. The kernel doubles the size; without
// CAP_NET_ADMIN in the initial user namespace it also bounds it by net.core.wmem_max.
func (c *conn) enlarge(size int) {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	}
}

// buffers are for receiving: the kernel fills a dump's messages up to 32 KiB.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// receive waits for one datagram and calls do for each of its messages until do returns true, and
// reports whether it did.
func (c *conn) receive(do func(nlmsg.Message) (bool, error)) (bool, error) {
	return c.receiveBy(0, do)
}

// poll is receive without waiting: with [unix.EAGAIN] if nothing has arrived.
func (c *conn) poll(do func(nlmsg.Message) (bool, error)) (bool, error) {
	return c.receiveBy(unix.MSG_DONTWAIT, do)
}

func (c *conn) receiveBy(flags int, do func(nlmsg.Message) (bool, error)) (bool, error) {
	buf := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	datagram, err := nlmsg.Receive(c.fd, buf[:], flags)
	if err != nil {
		return false, err
	}
	return nlmsg.Each(datagram, do)
}

// drain throws away what else has arrived, among it the answers that got lost.
func (c *conn) drain() {
	var buf [unix.NLMSG_HDRLEN]byte
	for {
		_, _, err := unix.Recvfrom(c.fd, buf[:], unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// commit sends a transaction and waits for the kernel's verdict.
func (c *conn) commit(t *Transaction) error {
	err := c.send(t.buf)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		err = &KernelError{Message: t.summary(), Errno: errno}
	}
	if err == nil {
		err = c.verdict(t)
	}
	if err != nil {
		// The kernel answers each message that it refuses, and the last one in any case.
		c.drain()
	}
	if errors.Is(err, nlmsg.ErrMalformed) {
		return &nlmsg.LostError{Err: err}
	}
	return err
}

// verdict receives answers up to the first refusal or the acknowledgement.
func (c *conn) verdict(t *Transaction) error {
	last := uint32(len(t.descriptions) - 2) // the one before the end of the batch asks for an acknowledgement
	for {
		done, err := c.receive(func(m nlmsg.Message) (bool, error) {
			if m.Type != unix.NLMSG_ERROR {
				return false, nil
			}
			a, err := m.Answer()
			switch {
			case err != nil:
				return false, err
			case int64(m.Sequence) >= int64(len(t.descriptions)):
				return false, nil // to a request that was given up
			case a.Errno == 0:
				return m.Sequence == last, nil
			}
			d := t.descriptions[m.Sequence]
			d.refused = t.element(m.Sequence, a.Offset)
			return false, &KernelError{Message: d.String(), Errno: a.Errno, Text: a.Text, msg: d.msg}
		})
		if done || err != nil {
			return err
		}
	}
}

// summary names the transaction as a whole.
func (t *Transaction) summary() string {
	return fmt.Sprintf("take a transaction of %d messages, %d bytes", len(t.descriptions), len(t.buf))
}

// request sends one message and calls do with the family and the attributes of each message of the
// answer. With NLM_F_DUMP among the flags the answer is a whole list; interrupted reports that the
// list changed meanwhile.
func (c *conn) request(msg int, flags uint16, family rules.Family, attrs func(*messages), do func(family uint8, a attributes)) (
	interrupted bool, err error,
) {
	proto := nfproto(family)
	if attrs == nil { // nothing is named: of all families
		proto = unix.NFPROTO_UNSPEC
	}
	// To a question (GETTABLE) the kernel answers as if it made the thing (NEWTABLE), with the
	// number before.
	return c.ask(question{messageType(msg), messageType(msg - 1), flags, proto}, attrs, do)
}

// A question is the header of a request, and the type of what the kernel answers with.
type question struct {
	msgType, answer uint16
	flags           uint16
	proto           uint8
}

// ask is request of any part of nfnetlink.
func (c *conn) ask(q question, attrs func(*messages), do func(family uint8, a attributes)) (interrupted bool, err error) {
	m := messages{buf: make([]byte, 0, 64)} // enough for most
	seq := firstRequest + c.requests
	c.requests = (c.requests + 1) % firstRequest
	m.begin(q.msgType, q.flags, seq, q.proto, 0)
	if attrs != nil {
		attrs(&m)
	}
	m.end()
	buf := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	return nlmsg.Exchange(c.fd, buf[:], m.buf, func(m nlmsg.Message) error {
		if m.Type != q.answer || len(m.Body) < 4 {
			return nlmsg.ErrMalformed
		}
		c.lastGeneration = binary.BigEndian.Uint16(m.Body[2:])
		do(m.Body[0], attributes(m.Body[4:]))
		return nil
	})
}

// generation returns the number of the ruleset's state in the namespace, which every change
// increments.
func (c *conn) generation() (uint32, error) {
	var id uint32
	_, err := c.request(unix.NFT_MSG_GETGEN, 0, rules.Inet, nil, func(_ uint8, a attributes) { id = a.Number(unix.NFTA_GEN_ID) })
	if err != nil {
		return 0, explainRead("read the generation", err)
	}
	return id, nil
}

// isGeneration waits until no transaction is under way, and reports whether the generation is the
// given one then. It sends a transaction of nothing, to which the kernel answers only if the
// generation is another.
func (c *conn) isGeneration(generation uint32) (bool, error) {
	var m messages
	m.beginBatch(generation)
	m.endBatch(1)
	if err := c.send(m.buf); err != nil {
		return false, explainRead("compare the generation", os.NewSyscallError("sendto", err))
	}
	for {
		_, err := c.poll(func(m nlmsg.Message) (bool, error) {
			if m.Type != unix.NLMSG_ERROR || m.Sequence > 1 {
				return false, nil // to a request that was given up
			}
			a, err := m.Answer()
			if err == nil {
				err = a.Errno
			}
			return false, err
		})
		switch {
		case errors.Is(err, unix.EAGAIN):
			return true, nil
		case errors.Is(err, unix.ERESTART):
			return false, nil
		case err != nil:
			return false, explainRead("compare the generation", err)
		}
	}
}

// findOurs returns our table without its chains, or nil. It is the cheapest question there is.
func (c *conn) findOurs() (*foundTable, error) {
	var found *foundTable
	_, err := c.request(unix.NFT_MSG_GETTABLE, 0, ourFamily,
		func(m *messages) { m.text(unix.NFTA_TABLE_NAME, rules.TableName) },
		func(_ uint8, a attributes) {
			t := decodeTable(ourFamily, a)
			found = &t
		})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, explainRead(fmt.Sprintf("look for table %s %s", ourFamily, rules.TableName), err)
	}
	return found, nil
}

// explainRead wraps the error of a request.
func explainRead(what string, err error) error {
	if lost := (*nlmsg.LostError)(nil); errors.As(err, &lost) {
		if errors.Is(err, unix.EAGAIN) { // after replyTimeout; asking again would take as long
			return fmt.Errorf("%s: the kernel does not answer", what)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// nfnetlink's answer for a subsystem that is not there.
		return &UnsupportedError{Feature: FeatureTables, Err: err}
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return &KernelError{Message: what, Errno: errno}
	}
	return fmt.Errorf("%s: %w", what, err)
}
