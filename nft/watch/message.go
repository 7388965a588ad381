package watch

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// native is the order of bytes in netlink.
var native = binary.NativeEndian

// A message is a datagram from the kernel. Those that pass the filters hold one each.
type message []byte

// kind is the message's type, 0 if it is none.
func (m message) kind() uint16 {
	if len(m) < unix.NLMSG_HDRLEN {
		return 0
	}
	return native.Uint16(m[typeAt:])
}

// sequence is the number of the question that the message answers, 0 if it answers none.
func (m message) sequence() uint32 {
	if len(m) < unix.NLMSG_HDRLEN {
		return 0
	}
	return native.Uint32(m[sequenceAt:])
}

// errno is what an error says; nil if that is that all is well.
func (m message) errno() error {
	if len(m) < bodyAt+4 {
		return unix.EBADMSG
	}
	if code := -int32(native.Uint32(m[bodyAt:])); code != 0 {
		return unix.Errno(code)
	}
	return nil
}

// attributes calls do for each attribute after a body of so many bytes.
func (m message) attributes(body int, do func(kind uint16, value []byte)) {
	a := m[min(bodyAt+body, len(m)):]
	for len(a) >= unix.NLA_HDRLEN {
		length := int(native.Uint16(a))
		if length < unix.NLA_HDRLEN || length > len(a) {
			return
		}
		do(native.Uint16(a[2:]), a[unix.NLA_HDRLEN:length])
		a = a[min((length+3)&^3, len(a)):]
	}
}

// generation is what the end of a transaction says.
func (m message) generation(e *Event) {
	const nfgenmsg = 4
	m.attributes(nfgenmsg, func(kind uint16, value []byte) {
		switch {
		case kind == unix.NFTA_GEN_ID && len(value) == 4:
			e.Generation = binary.BigEndian.Uint32(value)
		case kind == unix.NFTA_GEN_PROC_PID && len(value) == 4:
			e.PID = binary.BigEndian.Uint32(value)
		case kind == unix.NFTA_GEN_PROC_NAME:
			name, _, _ := bytes.Cut(value, []byte{0})
			e.Process = string(name)
		}
	})
}

// nsid is the id that the end of an id is about.
func (m message) nsid() (id int32, ok bool) {
	const rtgenmsg = 4 // with its padding
	m.attributes(rtgenmsg, func(kind uint16, value []byte) {
		if kind == unix.NETNSA_NSID && len(value) == 4 {
			id, ok = int32(native.Uint32(value)), true
		}
	})
	return id, ok
}

// nowhere stands for the listener's own namespace in what it hears, even if that has an id in itself. No id is negative.
const nowhere int32 = -1

// origin is the id of the namespace where a message comes from, from what came beside it.
func origin(control []byte) int32 {
	for len(control) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return nowhere
		}
		if h.Level == unix.SOL_NETLINK && h.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int32(native.Uint32(data))
		}
		control = rest
	}
	return nowhere
}
