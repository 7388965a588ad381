package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/rules"
)

// conn is a netlink socket that belongs to a network namespace, wherever its user runs. It is used by one goroutine at a time.
type conn struct {
	fd int
	// requests counts the requests. Their sequence numbers are greater than the numbers of a transaction's messages.
	requests uint32
	// lastGeneration is the lower half of the ruleset's generation when the last answer was given.
	lastGeneration uint16
	// most is how many bytes of rules are read; maxReadSize if 0.
	most int
}

// defaultSendBuffer is what a socket may send at once by default, less than net.core.wmem_default (212992).
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
	// Explanations where the kernel has them, and without the request that they are about: both since Linux 4.12.
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	err = unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &replyTimeout)
	if err != nil {
		c.close()
		return nil, os.NewSyscallError("setsockopt", err)
	}
	return c, nil
}

// close closes the socket. After a transaction that deletes it waits for the kernel to free what was deleted: 8 to 20 ms.
func (c *conn) close() { _ = unix.Close(c.fd) }

// send writes a whole batch or request.
func (c *conn) send(buf []byte) error {
	enlarged := len(buf) > defaultSendBuffer
	if enlarged {
		c.enlarge(len(buf))
	}
	for {
		_, err := unix.Write(c.fd, buf) // to the kernel, unless an address says otherwise
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EMSGSIZE) && !enlarged: // net.core.wmem_default is smaller than usual
			enlarged = true
			c.enlarge(len(buf))
		default:
			return err
		}
	}
}

// enlarge lets the socket send so many bytes at once. The kernel doubles the size; without CAP_NET_ADMIN in the initial user namespace
// it also bounds it by net.core.wmem_max.
func (c *conn) enlarge(size int) {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	}
}

// buffers are for receiving: the kernel fills a dump's messages up to 32 KiB.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// receive waits for one datagram and calls do for each of its messages until do returns true, and reports whether it did.
func (c *conn) receive(do func(header unix.NlMsghdr, body []byte) (bool, error)) (bool, error) {
	return c.receiveBy(0, do)
}

// poll is receive without waiting: with [unix.EAGAIN] if nothing has arrived.
func (c *conn) poll(do func(header unix.NlMsghdr, body []byte) (bool, error)) (bool, error) {
	return c.receiveBy(unix.MSG_DONTWAIT, do)
}

func (c *conn) receiveBy(flags int, do func(header unix.NlMsghdr, body []byte) (bool, error)) (bool, error) {
	buf := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(buf)
	var n int
	for {
		var from unix.Sockaddr
		var err error
		if n, from, err = unix.Recvfrom(c.fd, buf[:], flags); err == nil {
			// A process of the pod that may change its network can send what looks like an answer.
			if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
				continue
			}
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return false, &unknownOutcomeError{err}
		}
	}
	data := buf[:n]
	for len(data) >= unix.NLMSG_HDRLEN {
		header := unix.NlMsghdr{
			Len: native.Uint32(data), Type: native.Uint16(data[4:]), Flags: native.Uint16(data[6:]), Seq: native.Uint32(data[8:]),
		}
		if header.Len < unix.NLMSG_HDRLEN || int(header.Len) > len(data) {
			return false, errMalformed
		}
		done, err := do(header, data[unix.NLMSG_HDRLEN:header.Len])
		if done || err != nil {
			return done, err
		}
		data = data[min(align(int(header.Len)), len(data)):]
	}
	if n == 0 || len(data) > 0 {
		return false, errMalformed
	}
	return false, nil
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

var errMalformed = errors.New("the kernel's answer is not well-formed netlink")

// unknownOutcomeError reports that the answer to a request was lost, so that the request may have been carried out or not.
type unknownOutcomeError struct{ err error }

func (e *unknownOutcomeError) Error() string { return "the kernel's answer was lost: " + e.err.Error() }
func (e *unknownOutcomeError) Unwrap() error { return e.err }

// An answer is what a message of type NLMSG_ERROR says.
type answer struct {
	errno unix.Errno // 0 is an acknowledgement
	text  string     // the kernel's explanation, or empty
	// offset is where, in the message that is refused, the attribute lies that is the cause; 0 if that is not told.
	offset uint32
}

func newAnswer(header unix.NlMsghdr, body []byte) (answer, error) {
	if len(body) < 4+unix.NLMSG_HDRLEN {
		return answer{}, errMalformed
	}
	a := answer{errno: unix.Errno(-int32(native.Uint32(body)))}
	if header.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return a, nil
	}
	// The request follows, of which the header alone if it is capped.
	skip := 4 + unix.NLMSG_HDRLEN
	if header.Flags&unix.NLM_F_CAPPED == 0 {
		skip = 4 + int(native.Uint32(body[4:]))
	}
	if skip < 0 || skip > len(body) {
		return a, nil
	}
	tlvs := attributes(body[skip:])
	a.text = tlvs.text(unix.NLMSGERR_ATTR_MSG)
	if offset := tlvs.get(unix.NLMSGERR_ATTR_OFFS); len(offset) == 4 {
		a.offset = native.Uint32(offset)
	}
	return a, nil
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
	if errors.Is(err, errMalformed) {
		return &unknownOutcomeError{err}
	}
	return err
}

// verdict receives answers up to the first refusal or the acknowledgement.
func (c *conn) verdict(t *Transaction) error {
	last := uint32(len(t.descriptions) - 2) // the one before the end of the batch asks for an acknowledgement
	for {
		done, err := c.receive(func(header unix.NlMsghdr, body []byte) (bool, error) {
			if header.Type != unix.NLMSG_ERROR {
				return false, nil
			}
			a, err := newAnswer(header, body)
			switch {
			case err != nil:
				return false, err
			case int64(header.Seq) >= int64(len(t.descriptions)):
				return false, nil // to a request that was given up
			case a.errno == 0:
				return header.Seq == last, nil
			}
			d := t.descriptions[header.Seq]
			d.refused = t.element(header.Seq, a.offset)
			return false, &KernelError{Message: d.String(), Errno: a.errno, Text: a.text, msg: d.msg}
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

// request sends one message and calls do with the family and the attributes of each message of the answer. With NLM_F_DUMP among the flags the
// answer is a whole list; interrupted reports that the list changed meanwhile.
func (c *conn) request(msg int, flags uint16, family rules.Family, attrs func(*messages), do func(family uint8, a attributes)) (
	interrupted bool, err error,
) {
	proto := nfproto(family)
	if attrs == nil { // nothing is named: of all families
		proto = unix.NFPROTO_UNSPEC
	}
	// To a question (GETTABLE) the kernel answers as if it made the thing (NEWTABLE), with the number before.
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
	var m messages
	seq := firstRequest + c.requests
	c.requests = (c.requests + 1) % firstRequest
	m.begin(q.msgType, q.flags, seq, q.proto, 0)
	if attrs != nil {
		attrs(&m)
	}
	m.end()
	if err := c.send(m.buf); err != nil {
		return false, os.NewSyscallError("sendto", err)
	}
	for {
		done, err := c.receive(func(header unix.NlMsghdr, body []byte) (bool, error) {
			if header.Seq != seq {
				return false, nil // to an earlier request, of which the answer was given up
			}
			interrupted = interrupted || header.Flags&unix.NLM_F_DUMP_INTR != 0
			switch header.Type {
			case unix.NLMSG_DONE:
				if len(body) >= 4 && int32(native.Uint32(body)) < 0 {
					return false, unix.Errno(-int32(native.Uint32(body)))
				}
				return true, nil
			case unix.NLMSG_ERROR:
				a, err := newAnswer(header, body)
				switch {
				case err != nil:
					return false, err
				case a.errno == 0: // nobody has asked for an acknowledgement
					return false, errMalformed
				}
				return false, a.errno
			}
			if header.Type != q.answer || len(body) < 4 {
				return false, errMalformed
			}
			c.lastGeneration = binary.BigEndian.Uint16(body[2:])
			do(body[0], attributes(body[4:]))
			return header.Flags&unix.NLM_F_MULTI == 0, nil
		})
		if done || err != nil {
			return interrupted, err
		}
	}
}

// generation returns the number of the ruleset's state in the namespace, which every change increments.
func (c *conn) generation() (uint32, error) {
	var id uint32
	_, err := c.request(unix.NFT_MSG_GETGEN, 0, rules.Inet, nil, func(_ uint8, a attributes) { id = a.number(unix.NFTA_GEN_ID) })
	if err != nil {
		return 0, explainRead("read the generation", err)
	}
	return id, nil
}

// isGeneration waits until no transaction is under way, and reports whether the generation is the given one then. It sends a transaction
// of nothing, to which the kernel answers only if the generation is another.
func (c *conn) isGeneration(generation uint32) (bool, error) {
	var m messages
	m.beginBatch(generation)
	m.endBatch(1)
	if err := c.send(m.buf); err != nil {
		return false, explainRead("compare the generation", os.NewSyscallError("sendto", err))
	}
	for {
		_, err := c.poll(func(header unix.NlMsghdr, body []byte) (bool, error) {
			if header.Type != unix.NLMSG_ERROR || header.Seq > 1 {
				return false, nil // to a request that was given up
			}
			a, err := newAnswer(header, body)
			if err == nil {
				err = a.errno
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
	if lost := (*unknownOutcomeError)(nil); errors.As(err, &lost) {
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
