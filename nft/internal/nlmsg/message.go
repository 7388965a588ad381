// Package nlmsg sends netlink requests and decodes netlink messages. It checks every length, and
// ignores datagrams from senders other than the kernel. Decoding allocates memory only for texts.
//
//	_, err := nlmsg.Exchange(fd, buf, request, func(m nlmsg.Message) error {
//		id := nlmsg.Attributes(m.Body[4:]).Number(unix.NFTA_GEN_ID)
//		...
//	})
//
// A [Message] and its [Attributes] refer to the receive buffer.
package nlmsg

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// native is the byte order of netlink. It is a pointer because a copy would need initialization
// code at program start.
var native = &binary.NativeEndian

// ErrMalformed is the error for a datagram that violates the netlink protocol.
var ErrMalformed = errors.New("the kernel's answer is not well-formed netlink")

// A Message is a netlink message without its length and port id.
type Message struct {
	Type, Flags uint16
	Sequence    uint32
	Body        []byte
}

// Next returns the first message of a datagram and the rest of the datagram.
func Next(datagram []byte) (m Message, rest []byte, err error) {
	if len(datagram) < unix.NLMSG_HDRLEN {
		return Message{}, nil, ErrMalformed
	}
	length := native.Uint32(datagram)
	if length < unix.NLMSG_HDRLEN || uint64(length) > uint64(len(datagram)) {
		return Message{}, nil, ErrMalformed
	}
	m = Message{
		Type: native.Uint16(datagram[4:]), Flags: native.Uint16(datagram[6:]),
		Sequence: native.Uint32(datagram[8:]), Body: datagram[unix.NLMSG_HDRLEN:length:length],
	}
	return m, datagram[min(Align(int(length)), len(datagram)):], nil
}

// Each calls visit for each message of a datagram until visit returns true or an error, and returns
// the results of the last call. An empty datagram is malformed.
func Each(datagram []byte, visit func(Message) (done bool, err error)) (done bool, err error) {
	for {
		var m Message
		if m, datagram, err = Next(datagram); err != nil {
			return false, err
		}
		if done, err = visit(m); done || err != nil || len(datagram) == 0 {
			return done, err
		}
	}
}

// NewRequest returns a request with the sequence number 1.
func NewRequest(msgType, flags uint16, body ...byte) []byte {
	request := append(AppendHeader(nil, msgType, flags, 1), body...)
	SetLength(request)
	return request
}

// AppendHeader appends the header of a request. [SetLength] completes the header.
func AppendHeader(buf []byte, msgType, flags uint16, sequence uint32) []byte {
	var header [unix.NLMSG_HDRLEN]byte
	native.PutUint16(header[4:], msgType)
	native.PutUint16(header[6:], unix.NLM_F_REQUEST|flags)
	native.PutUint32(header[8:], sequence)
	return append(buf, header[:]...)
}

// SetLength sets the length in the header of a message to the length of the slice.
func SetLength(message []byte) { native.PutUint32(message, uint32(len(message))) }

// A Status is the content of a message of type NLMSG_ERROR: an acknowledgement or an error.
type Status struct {
	Errno unix.Errno // 0 for an acknowledgement
	Text  string     // the kernel's explanation, or empty
	// Offset is the position of the rejected attribute in the request, in bytes; 0 if unknown.
	Offset uint32
}

// Status decodes a message of type NLMSG_ERROR.
func (m Message) Status() (Status, error) {
	if len(m.Body) < 4+unix.NLMSG_HDRLEN {
		return Status{}, ErrMalformed
	}
	s := Status{Errno: unix.Errno(-int32(native.Uint32(m.Body)))}
	if m.Flags&unix.NLM_F_ACK_TLVS == 0 {
		return s, nil
	}
	// Skip the copy of the request. If NLM_F_CAPPED is set, the copy is only the header.
	skip := uint64(4 + unix.NLMSG_HDRLEN)
	if m.Flags&unix.NLM_F_CAPPED == 0 {
		skip = 4 + uint64(native.Uint32(m.Body[4:]))
	}
	if skip > uint64(len(m.Body)) {
		return s, nil
	}
	explanation := Attributes(m.Body[skip:])
	s.Text = explanation.Text(unix.NLMSGERR_ATTR_MSG)
	s.Offset, _ = explanation.HostNumber(unix.NLMSGERR_ATTR_OFFS)
	return s, nil
}

// doneError returns the error in the body of a message of type NLMSG_DONE.
func (m Message) doneError() error {
	if len(m.Body) < 4 {
		return nil
	}
	if errno := int32(native.Uint32(m.Body)); errno < 0 {
		return unix.Errno(-errno)
	}
	return nil
}
