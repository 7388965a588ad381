package nlmsg

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Align rounds a length up to the alignment of attributes and messages.
func Align(length int) int { return (length + unix.NLA_ALIGNTO - 1) &^ (unix.NLA_ALIGNTO - 1) }

// Attributes are the payload of a message or of a nested attribute.
type Attributes []byte

// next returns the first attribute and the rest. attrType does not contain the flags NLA_F_NESTED
// and NLA_F_NET_BYTEORDER. ok is false if there is no well-formed attribute.
func (a Attributes) next() (attrType uint16, value []byte, rest Attributes, ok bool) {
	if len(a) < unix.NLA_HDRLEN {
		return 0, nil, nil, false
	}
	length := int(native.Uint16(a))
	if length < unix.NLA_HDRLEN || length > len(a) {
		return 0, nil, nil, false
	}
	attrType = native.Uint16(a[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return attrType, a[unix.NLA_HDRLEN:length:length], a[min(Align(length), len(a)):], true
}

// Each calls visit for each attribute and reports whether all attributes are well-formed.
func (a Attributes) Each(visit func(attrType uint16, value []byte)) bool {
	for len(a) > 0 {
		attrType, value, rest, ok := a.next()
		if !ok {
			return false
		}
		visit(attrType, value)
		a = rest
	}
	return true
}

// Get returns the value of the first attribute of the type, or nil.
func (a Attributes) Get(attrType uint16) []byte {
	for {
		found, value, rest, ok := a.next()
		if !ok || found == attrType {
			return value
		}
		a = rest
	}
}

// Number returns an attribute that is a 32-bit number in network byte order, or 0 if the attribute
// is absent or has another length.
func (a Attributes) Number(attrType uint16) uint32 {
	value := a.Get(attrType)
	if len(value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(value)
}

// Number64 returns an attribute that is a 64-bit number in network byte order, or 0 if the
// attribute is absent or has another length.
func (a Attributes) Number64(attrType uint16) uint64 {
	value := a.Get(attrType)
	if len(value) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(value)
}

// HostNumber returns an attribute that is a 32-bit number in host byte order. It returns false if
// the attribute is absent or has another length.
func (a Attributes) HostNumber(attrType uint16) (uint32, bool) {
	return HostNumber(a.Get(attrType))
}

// HostNumber decodes a 32-bit number in host byte order. It returns false if the value has another
// length.
func HostNumber(value []byte) (uint32, bool) {
	if len(value) != 4 {
		return 0, false
	}
	return native.Uint32(value), true
}

// Text returns an attribute that is a string, without its terminating zero. It returns an empty
// string if the attribute is absent.
func (a Attributes) Text(attrType uint16) string { return Text(a.Get(attrType)) }

// HasText reports whether Text would return s, without allocating the string.
func (a Attributes) HasText(attrType uint16, s string) bool {
	text, _, _ := bytes.Cut(a.Get(attrType), []byte{0})
	return string(text) == s
}

// Text returns the part of a value before its first zero.
func Text(value []byte) string {
	text, _, _ := bytes.Cut(value, []byte{0})
	return string(text)
}
