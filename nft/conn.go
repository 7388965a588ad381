package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
	"github.com/sluice-mesh/sluice/rules"
)

// conn is a netlink socket. It belongs to the network namespace of the thread that opened it, and
// must be used by one goroutine at a time.
type conn struct {
	fd int
	// requests is the number of requests that were sent. Their sequence numbers start at
	// firstRequest.
	requests uint32
	// lastGeneration is the lower half of the ruleset's generation in the last answer.
	lastGeneration uint16
	// maxSize is the maximum number of bytes of rules that are read. 0 means the limit of
	// LimitReads.
	maxSize int
	// indexScope is [ruleDecoder.indexScope] of the rules that are read.
	indexScope netns.ID
}

// defaultSendBuffer is the maximum number of bytes that are sent without enlarging the send buffer.
// It is a little less than net.core.wmem_default (212992).
const defaultSendBuffer = 200 << 10

// firstRequest is the sequence number of the first request. It is greater than the sequence numbers
// of a transaction's messages.
const firstRequest = 1 << 31

// dial opens a socket in the namespace of the thread.
func dial() (*conn, error) {
	fd, err := nlmsg.Open(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return nil, &UnsupportedError{Feature: FeatureNetlink, Err: err}
	}
	if err != nil {
		return nil, err
	}
	// Request extended acknowledgements without a copy of the request (Linux 4.12 and later).
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	return &conn{fd: fd}, nil
}

// withSocket calls f with a socket in the namespace, and returns the result of f. An error names
// the namespace.
func withSocket[T any](ns *netns.NS, f func(*conn) (T, error)) (result T, err error) {
	err = ns.DoNamed(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		result, err = f(c)
		return err
	})
	return result, err
}

// close closes the socket. After a transaction with deletions it waits 8 to 20 ms until the kernel
// has freed the deleted objects.
func (c *conn) close() { _ = unix.Close(c.fd) }

// send sends a complete batch or request.
func (c *conn) send(buf []byte) error {
	enlarged := len(buf) > defaultSendBuffer
	if enlarged {
		c.enlargeSendBuffer(len(buf))
	}
	err := nlmsg.Send(c.fd, buf)
	if errors.Is(err, unix.EMSGSIZE) && !enlarged { // net.core.wmem_default is smaller than usual
		c.enlargeSendBuffer(len(buf))
		err = nlmsg.Send(c.fd, buf)
	}
	return err
}

// enlargeSendBuffer sets the size of the send buffer. The kernel doubles the size. Without
// CAP_NET_ADMIN in the initial user namespace it limits the size to net.core.wmem_max.
func (c *conn) enlargeSendBuffer(size int) {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size)
	}
}

// receive waits for one datagram and calls visit for each of its messages until visit returns true
// or an error. It returns the results of the last call of visit. flags are flags of recvfrom(2):
// with MSG_DONTWAIT receive returns [unix.EAGAIN] instead of waiting.
func (c *conn) receive(flags int, visit func(nlmsg.Message) (bool, error)) (bool, error) {
	buf := nlmsg.GetBuffer()
	defer buf.Release()
	datagram, err := nlmsg.Receive(c.fd, buf[:], flags)
	if err != nil {
		return false, err
	}
	return nlmsg.Each(datagram, visit)
}

// drain discards all received datagrams, and the pending error if datagrams were lost.
func (c *conn) drain() {
	var buf [unix.NLMSG_HDRLEN]byte
	for {
		_, _, err := unix.Recvfrom(c.fd, buf[:], unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// commit sends a transaction and waits for its result.
func (c *conn) commit(t *Transaction) error {
	err := c.send(t.buf)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		err = &KernelError{Message: t.summary(), Errno: errno}
	}
	if err == nil {
		err = c.receiveResult(t)
	}
	if err != nil {
		// Discard the other answers: the kernel answers each rejected message and the last message.
		c.drain()
	}
	if errors.Is(err, nlmsg.ErrMalformed) {
		return &nlmsg.LostError{Err: err}
	}
	return err
}

// receiveResult receives answers up to the first error or the acknowledgement of the last message.
func (c *conn) receiveResult(t *Transaction) error {
	for {
		done, err := c.receive(0, func(m nlmsg.Message) (bool, error) {
			if m.Type != unix.NLMSG_ERROR {
				return false, nil
			}
			s, err := m.Status()
			switch {
			case err != nil:
				return false, err
			case int64(m.Sequence) >= int64(len(t.descriptions)):
				return false, nil // a late answer to an abandoned request
			case s.Errno == 0:
				return m.Sequence == t.lastSequence(), nil
			}
			d := t.descriptions[m.Sequence]
			d.rejected = t.elementAt(m.Sequence, s.Offset)
			return false, &KernelError{
				Message: d.String(), Errno: s.Errno, Text: s.Text, msg: d.msg,
			}
		})
		if done || err != nil {
			return err
		}
	}
}

// summary describes the transaction for errors that do not concern a single message. It continues
// the sentence "the kernel refuses to".
func (t *Transaction) summary() string {
	return fmt.Sprintf("execute a transaction of %d messages, %d bytes", len(t.descriptions),
		len(t.buf))
}

// request sends an nf_tables request, and calls visit with the family and the attributes of each
// message of the answer. If the flags include NLM_F_DUMP, the answer is a list, and interrupted
// reports that the listed objects changed during the dump. If attrs is nil, the request applies to
// all families.
func (c *conn) request(
	msg int, flags uint16, family rules.Family,
	attrs func(*messages), visit func(family uint8, a attributes),
) (interrupted bool, err error) {
	proto := nfproto(family)
	if attrs == nil {
		proto = unix.NFPROTO_UNSPEC
	}
	// The type of the answer to a GET request is the type of the NEW message, which precedes it.
	h := requestHeader{messageType(msg), messageType(msg - 1), flags, proto}
	return c.exchange(h, attrs, visit)
}

// A requestHeader contains the header fields of an nfnetlink request, and the message type of its
// answer.
type requestHeader struct {
	msgType, answerType uint16
	flags               uint16
	proto               uint8
}

// exchange is like request, but for any nfnetlink subsystem.
func (c *conn) exchange(
	h requestHeader, attrs func(*messages), visit func(family uint8, a attributes),
) (interrupted bool, err error) {
	m := messages{buf: make([]byte, 0, 64)} // enough for most requests
	seq := firstRequest + c.requests
	c.requests = (c.requests + 1) % firstRequest
	m.begin(h.msgType, h.flags, seq, h.proto, 0)
	if attrs != nil {
		attrs(&m)
	}
	m.end()
	buf := nlmsg.GetBuffer()
	defer buf.Release()
	return nlmsg.Exchange(c.fd, buf[:], m.buf, func(m nlmsg.Message) error {
		// The body begins with the nfnetlink header: family, version and res_id, which contains the
		// lower half of the generation.
		const headerSize = 4
		if m.Type != h.answerType || len(m.Body) < headerSize {
			return nlmsg.ErrMalformed
		}
		c.lastGeneration = binary.BigEndian.Uint16(m.Body[2:])
		visit(m.Body[0], attributes(m.Body[headerSize:]))
		return nil
	})
}

// generation returns the generation id of the ruleset in the namespace. Every change of the ruleset
// increments it.
func (c *conn) generation() (uint32, error) {
	var id uint32
	_, err := c.request(unix.NFT_MSG_GETGEN, 0, rules.Inet, nil, func(_ uint8, a attributes) {
		id = a.Number(unix.NFTA_GEN_ID)
	})
	if err != nil {
		return 0, explainRead("read the generation", err)
	}
	return id, nil
}

// isGeneration waits until no transaction is in progress, and then reports whether the ruleset has
// the given generation. It sends an empty transaction, which the kernel answers only if the
// generation differs.
func (c *conn) isGeneration(generation uint32) (bool, error) {
	var m messages
	m.beginBatch(generation)
	m.endBatch(1)
	if err := c.send(m.buf); err != nil {
		return false, explainRead("compare the generation", os.NewSyscallError("sendto", err))
	}
	for {
		_, err := c.receive(unix.MSG_DONTWAIT, func(m nlmsg.Message) (bool, error) {
			if m.Type != unix.NLMSG_ERROR || m.Sequence > 1 { // the batch consists of 0 and 1
				return false, nil // a late answer to an abandoned request
			}
			s, err := m.Status()
			if err == nil {
				err = s.Errno
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

// findSluiceTable returns the Sluice table without its chains, or nil if it does not exist.
func (c *conn) findSluiceTable() (*foundTable, error) { return c.findTable(rules.TableName) }

// findTable is like findSluiceTable for an inet table with another name.
func (c *conn) findTable(name string) (*foundTable, error) {
	var found *foundTable
	_, err := c.request(unix.NFT_MSG_GETTABLE, 0, tableFamily,
		func(m *messages) { m.addText(unix.NFTA_TABLE_NAME, name) },
		func(_ uint8, a attributes) {
			t := decodeTable(tableFamily, a)
			found = &t
		})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, explainRead(fmt.Sprintf("get table %s %s", tableFamily, name), err)
	}
	return found, nil
}

// explainRead returns the error of a request that performs the operation. It is an
// [UnsupportedError] if the kernel lacks nf_tables, and a [KernelError] for any other error number.
func explainRead(operation string, err error) error {
	if lost := (*nlmsg.LostError)(nil); errors.As(err, &lost) {
		// nlmsg.AnswerTimeout has passed. Do not wrap the LostError, so that no caller retries.
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("%s: the kernel does not answer", operation)
		}
		return fmt.Errorf("%s: %w", operation, err)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		// nfnetlink returns these errors for a missing subsystem.
		return &UnsupportedError{Feature: FeatureTables, Err: err}
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return &KernelError{Message: operation, Errno: errno}
	}
	return fmt.Errorf("%s: %w", operation, err)
}
