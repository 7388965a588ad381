package nlmsg

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// errTruncated is the error for a datagram that is longer than the buffer.
var errTruncated = errors.New("the kernel's answer is longer than the buffer")

// A LostError is the error for a lost answer: it is unknown whether the kernel has executed the
// request.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "the kernel's answer was lost: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// AnswerTimeout is the receive timeout of sockets for requests. The kernel queues its answer before
// the send returns, so that a missing answer is lost.
var AnswerTimeout = unix.Timeval{Sec: 10}

// Open opens a socket of the netlink protocol for requests to the kernel in the namespace of the
// thread. The socket is connected ([Connect]) and has the timeout [AnswerTimeout].
func Open(protocol int) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, fmt.Errorf("open a netlink socket: %w", err)
	}
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &AnswerTimeout)
	if err != nil {
		err = os.NewSyscallError("setsockopt", err)
	} else {
		err = Connect(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Connect connects a netlink socket to the kernel. The kernel then refuses datagrams that processes
// send to the socket (netlink_getsockbyportid in net/netlink/af_netlink.c). Otherwise a process of
// the pod, which can read the port id in /proc/net/netlink, could fill the receive buffer. Connect
// discards the datagrams that arrived before it.
func Connect(fd int) error {
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("connect", err)
	}
	for {
		_, _, err := unix.Recvfrom(fd, nil, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("recvfrom", err)
		}
	}
}

// SetReceiveBuffer sets the size of the receive buffer, which the kernel doubles. Without
// CAP_NET_ADMIN in the initial user namespace, the kernel limits it to net.core.rmem_max.
func SetReceiveBuffer(fd, size int) {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size)
	}
}

// Send writes one datagram to the kernel.
func Send(fd int, datagram []byte) error {
	for {
		_, err := unix.Write(fd, datagram)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// A Buffer is a buffer for [Receive]. A datagram of a dump has at most 32 KiB.
type Buffer [64 << 10]byte

// buffers contains values of type *Buffer.
var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// GetBuffer returns a buffer with arbitrary content. The caller may release it after use.
func GetBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Release makes the buffer available to [GetBuffer].
func (b *Buffer) Release() { buffers.Put(b) }

// Receive reads a datagram from the kernel into buf, with flags of recvfrom(2). Every error is a
// [LostError].
//
// Receive ignores datagrams of other senders: a process with CAP_NET_ADMIN in the network namespace
// can forge an answer if the socket is not connected ([Connect]).
func Receive(fd int, buf []byte, flags int) ([]byte, error) {
	for {
		n, from, err := unix.Recvfrom(fd, buf, flags|unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &LostError{err}
		}
		if sender, ok := from.(*unix.SockaddrNetlink); ok && sender.Pid != 0 {
			continue
		}
		if n > len(buf) {
			return nil, &LostError{errTruncated}
		}
		return buf[:n], nil
	}
}

// Exchange sends one or more requests in one datagram, and calls visit for each message of the
// answers until the answer to the last request is complete. The sequence numbers of the requests
// must ascend. If the last request has NLM_F_ACK, its answer ends with the acknowledgement.
// Otherwise the answer to a dump ends with NLMSG_DONE, and any other answer with its first message.
// interrupted reports whether the listed objects changed during a dump.
//
// Exchange returns an error that answers the last request, and passes acknowledgements and errors
// of earlier requests to visit. It reads answers into buf, which may overlap requests.
func Exchange(
	fd int, buf, requests []byte, visit func(Message) error,
) (interrupted bool, err error) {
	first, last, err := firstAndLast(requests)
	if err != nil {
		return false, err
	}
	if err := Send(fd, requests); err != nil {
		return false, os.NewSyscallError("write", err)
	}
	wantsAck := last.Flags&unix.NLM_F_ACK != 0
	read := func(m Message) (bool, error) {
		if m.Sequence-first.Sequence > last.Sequence-first.Sequence {
			return false, nil // a late answer to an abandoned request
		}
		interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
		if m.Sequence != last.Sequence {
			return false, visit(m)
		}
		switch m.Type {
		case unix.NLMSG_DONE:
			return true, m.doneError()
		case unix.NLMSG_ERROR:
			s, err := m.Status()
			switch {
			case err != nil:
				return false, err
			case s.Errno != 0:
				return false, s.Errno
			case !wantsAck:
				return false, ErrMalformed
			}
			return true, nil
		}
		return m.Flags&unix.NLM_F_MULTI == 0 && !wantsAck, visit(m)
	}
	for {
		datagram, err := Receive(fd, buf, 0)
		if err != nil {
			return interrupted, err
		}
		if done, err := Each(datagram, read); done || err != nil {
			return interrupted, err
		}
	}
}

// Request is [Exchange] with a new socket of the netlink protocol, in the namespace of the thread.
func Request(
	protocol int, requests []byte, visit func(Message) error,
) (interrupted bool, err error) {
	fd, err := Open(protocol)
	if err != nil {
		return false, err
	}
	defer func() { _ = unix.Close(fd) }()
	buf := GetBuffer()
	defer buf.Release()
	return Exchange(fd, buf[:], requests, visit)
}

// Dump iterates over the answers to a dump request, like [Request]. It keeps one datagram in
// memory: the kernel lists more objects when the datagram has been read. An error is the last
// element. Dump does not report whether the objects changed during the dump.
func Dump(protocol int, request []byte) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		errStopped := errors.New("stopped")
		_, err := Request(protocol, request, func(m Message) error {
			if !yield(m, nil) {
				return errStopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStopped) {
			yield(Message{}, err)
		}
	}
}

// firstAndLast returns the first and the last message of requests.
func firstAndLast(requests []byte) (first, last Message, err error) {
	for n := 0; len(requests) > 0 || n == 0; n++ {
		if last, requests, err = Next(requests); err != nil {
			return first, last, err
		}
		if n == 0 {
			first = last
		}
	}
	return first, last, nil
}
