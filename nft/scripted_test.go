package nft

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/nft/netns"
)

// A script intercepts the requests of a connection to the kernel. It receives a request and a
// function that forwards requests to the kernel, and returns the datagrams that the connection
// receives as the answer.
type script func(request []byte, kernel func([]byte) [][]byte) [][]byte

// scripted returns a connection whose requests a script answers. The script can forward requests to
// the kernel in the namespace ns. If ns is nil, the kernel does not answer forwarded requests.
func scripted(t testing.TB, ns *netns.NS, s script) *conn {
	t.Helper()
	// Use AF_UNIX instead of AF_NETLINK: the socket preserves the boundaries of datagrams and
	// ignores addresses.
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&nlmsg.AnswerTimeout); err != nil {
		t.Fatal(err)
	}
	kernel := func([]byte) [][]byte { return nil }
	closeKernel := func() {}
	if ns != nil {
		var c *conn
		if err := ns.Do(func() (err error) { c, err = dial(); return err }); err != nil {
			t.Fatal(err)
		}
		kernel, closeKernel = c.roundTrip, c.close
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer closeKernel()
		request := make([]byte, 1<<20)
		for {
			n, err := unix.Read(pair[1], request)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n <= 0 || err != nil {
				return
			}
			for _, datagram := range s(request[:n:n], kernel) {
				_, _ = unix.Write(pair[1], datagram)
			}
		}
	}()
	t.Cleanup(func() {
		_ = unix.Close(pair[0])
		<-ended
		_ = unix.Close(pair[1])
	})
	return &conn{fd: pair[0]}
}

// withShortTimeout sets a timeout of 2 s for answers and returns the connection. It is for a script
// that omits some answers. The other answers arrive as soon as the goroutine of the script runs. On
// a busy machine this takes about 100 ms.
func (c *conn) withShortTimeout(t testing.TB) *conn {
	t.Helper()
	c.setTimeout(t, 2*time.Second)
	return c
}

// setTimeout sets the timeout for answers.
func (c *conn) setTimeout(t testing.TB, d time.Duration) {
	t.Helper()
	timeout := unix.NsecToTimeval(d.Nanoseconds())
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&timeout); err != nil {
		t.Fatal(err)
	}
}

// roundTrip sends a request to the kernel and returns its complete answer, which is available when
// the send returns.
func (c *conn) roundTrip(request []byte) [][]byte {
	if err := c.send(request); err != nil {
		panic(err)
	}
	var datagrams [][]byte
	for {
		buf := make([]byte, 64<<10)
		n, _, err := unix.Recvfrom(c.fd, buf, unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return datagrams
		}
		datagrams = append(datagrams, buf[:n])
	}
}

// firstMessageType returns the type of the first message of a request.
func firstMessageType(request []byte) uint16 { return native.Uint16(request[4:]) }

// isBatch reports whether a request is a non-empty transaction.
func isBatch(request []byte) bool {
	return firstMessageType(request) == unix.NFNL_MSG_BATCH_BEGIN && len(request) > 3*(unix.NLMSG_HDRLEN+4)
}

// encodeAnswer encodes a message that answers a request.
func encodeAnswer(request []byte, msgType, flags uint16, body ...byte) []byte {
	m := messages{buf: make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))}
	native.PutUint16(m.buf[4:], msgType)
	native.PutUint16(m.buf[6:], flags)
	copy(m.buf[8:12], request[8:12])
	m.buf = append(m.buf, body...)
	m.end()
	return m.buf
}

// encodeError encodes the kernel's error for the message with the sequence number, or an
// acknowledgement if errno is 0.
func encodeError(seq uint32, errno unix.Errno, flags uint16, rest ...byte) []byte {
	header := make([]byte, 12)
	native.PutUint32(header[8:], seq)
	body := native.AppendUint32(nil, uint32(-int32(errno)))
	body = append(body, make([]byte, unix.NLMSG_HDRLEN)...) // the header of the message
	native.PutUint32(body[4:], unix.NLMSG_HDRLEN)
	return encodeAnswer(header, unix.NLMSG_ERROR, flags, append(body, rest...)...)
}
