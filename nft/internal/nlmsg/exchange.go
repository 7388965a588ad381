package nlmsg

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errTruncated reports a datagram that is longer than the buffer.
var errTruncated = errors.New("the kernel's answer is longer than the buffer")

// A LostError reports that the answer to a request was lost: the request may have been carried out
// or not.
type LostError struct{ Err error }

func (e *LostError) Error() string { return "the kernel's answer was lost: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Err }

// Send writes one datagram to the kernel, the peer of a netlink socket that has no other.
func Send(fd int, datagram []byte) error {
	for {
		_, err := unix.Write(fd, datagram)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Receive reads a datagram from the kernel into buf, with flags of recvfrom(2). Any error is a
// [LostError].
//
// Datagrams from other senders are ignored: a process that may change the network of the namespace
// can send what looks like an answer.
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

// Exchange sends one or more requests in one datagram, with ascending sequence numbers, and calls
// do for each message of the answers until the last request is answered: by an acknowledgement if
// it asks for one, else by the end of a list or a message outside a list. Interrupted reports that
// a list changed while the kernel wrote it.
//
// An error that answers the last request is returned; earlier requests' acknowledgements and errors
// are messages for do. Answers are read into buf, which may hold the requests.
func Exchange(fd int, buf, requests []byte, do func(Message) error) (interrupted bool, err error) {
	first, last, err := ends(requests)
	if err != nil {
		return false, err
	}
	if err := Send(fd, requests); err != nil {
		return false, os.NewSyscallError("write", err)
	}
	wantsAck := last.Flags&unix.NLM_F_ACK != 0
	read := func(m Message) (bool, error) {
		if m.Sequence-first.Sequence > last.Sequence-first.Sequence {
			return false, nil // answers an earlier request that was given up
		}
		interrupted = interrupted || m.Flags&unix.NLM_F_DUMP_INTR != 0
		if m.Sequence != last.Sequence {
			return false, do(m)
		}
		switch m.Type {
		case unix.NLMSG_DONE:
			return true, m.end()
		case unix.NLMSG_ERROR:
			a, err := m.Answer()
			switch {
			case err != nil:
				return false, err
			case a.Errno != 0:
				return false, a.Errno
			case !wantsAck:
				return false, ErrMalformed
			}
			return true, nil
		}
		return m.Flags&unix.NLM_F_MULTI == 0 && !wantsAck, do(m)
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

// ends returns the first and the last of the requests.
func ends(requests []byte) (first, last Message, err error) {
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
