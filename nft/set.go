package nft

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// A set is an nf_tables set with the values of a match.
type set struct {
	ref       setRef
	anonymous bool
	interval  bool
	hostOrder bool // keys are in host byte order; only the nft command uses this, to print them
	keyType   uint32
	keyLength uint32 // in bytes
	elements  []element
}

// setRef refers to a set in an expression, by the name of the set and by its id in the transaction
// that creates it.
type setRef struct {
	name string
	id   uint32
}

// An element is a key of a set. In an interval set, the end of an interval is a separate element.
// Its key is the last key of the interval plus one.
type element struct {
	key []byte
	end bool
}

// needsSet reports whether a match has several values that need a set.
func needsSet(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchAddr, rules.MatchOwner, rules.MatchInterface, rules.MatchProtocol:
		return valueCount(m) > 1
	case rules.MatchPort:
		return len(m.Ports) > 1 && !comparesEach(m)
	}
	return false
}

// valueCount returns the number of values of a match.
func valueCount(m rules.Match) int {
	switch m := m.(type) {
	case rules.MatchAddr:
		return len(m.Ranges)
	case rules.MatchInterface:
		return len(m.Names)
	case rules.MatchProtocol:
		return len(m.Protocols)
	case rules.MatchPort:
		return len(m.Ports)
	case rules.MatchOwner:
		return len(m.IDs)
	case rules.MatchMarkRange:
		return len(m.Values)
	case rules.MatchICMP:
		return len(m.Values)
	case rules.MatchTuple:
		return len(m.Alternatives)
	}
	return 1
}

// newSet returns the set that a match needs, or nil if it needs none.
func newSet(m rules.Match) *set {
	if !needsSet(m) {
		return nil
	}
	switch m := m.(type) {
	case rules.MatchAddr:
		s := &set{
			ref: setRef{name: m.Set}, anonymous: m.Set == "", interval: true, keyType: typeIPv4,
			keyLength: 4,
		}
		if m.Family() == rules.IPv6 {
			s.keyType, s.keyLength = typeIPv6, 16
		}
		s.elements = addrElements(m)
		return s
	case rules.MatchPort:
		if len(m.Ports) >= rules.ManyPorts {
			return intervalSet(m.Ports, typePort, portBytes)
		}
		return rangeSet(m.Ports, typePort, portBytes, portBytes)
	case rules.MatchOwner:
		keyType := uint32(typeUID)
		if m.Group {
			keyType = typeGID
		}
		return rangeSet(m.IDs, keyType, hostBytes, networkBytes)
	case rules.MatchInterface:
		s := keySet(m.Names, typeInterface, interfaceBytes)
		s.hostOrder = true // like all strings in nft
		return s
	case rules.MatchProtocol:
		return keySet(m.Protocols, typeProtocol, func(p rules.Protocol) []byte { return []byte{byte(p)} })
	}
	return nil
}

// comparesEach reports whether a match is encoded as one comparison for each port, which is cheaper
// than a set.
func comparesEach(m rules.MatchPort) bool {
	return m.Not && len(m.Ports) <= 3 && !hasInterval(m.Ports)
}

// addrElements returns the elements of an interval set with the ranges of the match.
func addrElements(m rules.MatchAddr) []element {
	elements := make([]element, 0, 2*len(m.Ranges))
	// All keys share an allocation, because there may be thousands.
	keys := make([]byte, 0, cap(elements)*int(addrField(m.Family(), m.Side).length))
	add := func(a netip.Addr, end bool) {
		start := len(keys)
		keys, _ = a.AppendBinary(keys) // never fails
		elements = append(elements, element{keys[start:len(keys):len(keys)], end})
	}
	for _, r := range m.Ranges {
		add(r.From(), false)
		// An interval that includes the last address has no end element.
		if after := r.To().Next(); after.IsValid() {
			add(after, true)
		}
	}
	return elements
}

// addrElementCount returns the number of elements that addrElements returns.
func addrElementCount(ranges []netipx.IPRange) int {
	n := 2 * len(ranges)
	for _, r := range ranges {
		if !r.To().Next().IsValid() {
			n--
		}
	}
	return n
}

// keySet returns an anonymous set of the single keys that encode returns for the values.
func keySet[T any](values []T, keyType uint32, encode func(T) []byte) *set {
	s := &set{anonymous: true, keyType: keyType}
	for _, v := range values {
		s.elements = append(s.elements, element{key: encode(v)})
	}
	s.keyLength = uint32(len(s.elements[0].key))
	return s
}

// rangeSet returns an anonymous set of numbers. It is an interval set if one of the ranges contains
// several numbers. encodeSingle encodes single numbers, and encodeBound the bounds of ranges.
func rangeSet[T uint16 | uint32](
	ranges []rules.Range[T], keyType uint32, encodeSingle, encodeBound func(T) []byte,
) *set {
	if !hasInterval(ranges) {
		s := keySet(ranges, keyType, func(r rules.Range[T]) []byte { return encodeSingle(r.First) })
		s.hostOrder = keyType != typePort
		return s
	}
	return intervalSet(ranges, keyType, encodeBound)
}

// intervalSet returns an anonymous interval set of numbers.
func intervalSet[T uint16 | uint32](
	ranges []rules.Range[T], keyType uint32, encodeBound func(T) []byte,
) *set {
	s := &set{
		anonymous: true, interval: true, keyType: keyType, keyLength: uint32(len(encodeBound(0))),
	}
	for _, r := range ranges {
		s.elements = append(s.elements, element{key: encodeBound(r.First)})
		if r.Last != ^T(0) {
			s.elements = append(s.elements, element{key: encodeBound(r.Last + 1), end: true})
		}
	}
	return s
}

// writeSet encodes the creation of a set with its elements. If the set is anonymous, d contains its
// rule.
func (e *encoder) writeSet(s *set, d description) {
	flags := flagIf(s.anonymous, unix.NFT_SET_ANONYMOUS|unix.NFT_SET_CONSTANT) |
		flagIf(s.interval, unix.NFT_SET_INTERVAL)
	d.set = s.ref.name
	e.beginMessage(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, d)
	e.addText(unix.NFTA_SET_TABLE, e.table.Name)
	e.addText(unix.NFTA_SET_NAME, s.ref.name)
	e.addNumber(unix.NFTA_SET_FLAGS, flags)
	e.addNumber(unix.NFTA_SET_KEY_TYPE, s.keyType)
	e.addNumber(unix.NFTA_SET_KEY_LEN, s.keyLength)
	e.addNumber(unix.NFTA_SET_ID, s.ref.id)
	if s.hostOrder {
		userdata := append([]byte{udataSetKeyByteOrder, 4},
			native.AppendUint32(nil, byteOrderHost)...)
		e.addAttr(unix.NFTA_SET_USERDATA, userdata)
	}
	e.end()
	e.writeElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.ref, s.elements, d)
}

// elementSize is the maximum size of an encoded element in bytes without its key, which has at most
// 16 bytes. maxElements is the maximum number of elements in a message: the list of elements is an
// attribute, which has at most 64 KiB. The number is even, so that both ends of an interval are in
// one message.
const (
	elementSize = 20
	maxElements = math.MaxUint16 / (elementSize + 16) / 2 * 2
)

// writeElements encodes the addition or, depending on msg, the deletion of elements of a set, in
// several messages if necessary.
func (e *encoder) writeElements(
	msg int, flags uint16, ref setRef, elements []element, d description,
) {
	if len(elements) > 0 { // grow the buffer only once
		e.buf = slices.Grow(e.buf, len(elements)*(elementSize+len(elements[0].key)))
	}
	for first := 0; first < len(elements); first += maxElements {
		chunk := elements[first:min(first+maxElements, len(elements))]
		d.set = ref.name
		if d.rule == nil {
			d.element = keyText(chunk[0].key)
		}
		e.beginMessage(msg, flags, d)
		e.addText(unix.NFTA_SET_ELEM_LIST_TABLE, e.table.Name)
		e.addText(unix.NFTA_SET_ELEM_LIST_SET, ref.name)
		if ref.id != 0 {
			e.addNumber(unix.NFTA_SET_ELEM_LIST_SET_ID, ref.id)
		}
		list := e.beginNest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, el := range chunk {
			e.buf = appendElement(e.buf, el)
		}
		e.endNest(list)
		e.end()
	}
}

// appendElement encodes an element. It computes the lengths first, which is much faster than
// messages.beginNest: there may be thousands of elements.
func appendElement(buf []byte, el element) []byte {
	data := unix.NLA_HDRLEN + nlmsg.Align(len(el.key)) // the attribute NFTA_DATA_VALUE
	length := 2*unix.NLA_HDRLEN + data
	if el.end {
		length += unix.NLA_HDRLEN + 4
	}
	buf = appendHeader(buf, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED, length)
	if el.end {
		buf = appendHeader(buf, unix.NFTA_SET_ELEM_FLAGS, unix.NLA_HDRLEN+4)
		buf = binary.BigEndian.AppendUint32(buf, unix.NFT_SET_ELEM_INTERVAL_END)
	}
	buf = appendHeader(buf, unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, unix.NLA_HDRLEN+data)
	buf = appendHeader(buf, unix.NFTA_DATA_VALUE, unix.NLA_HDRLEN+len(el.key))
	buf = append(buf, el.key...)
	return append(buf, make([]byte, nlmsg.Align(len(el.key))-len(el.key))...)
}

// The following functions encode and decode keys. A key is a value in the form in which the kernel
// stores it in sets and compares it with packets.

// portBytes encodes a port in network byte order.
func portBytes(port uint16) []byte { return binary.BigEndian.AppendUint16(nil, port) }

// hostBytes encodes a number in host byte order, as in registers and in sets of single numbers.
func hostBytes(n uint32) []byte { return native.AppendUint32(nil, n) }

// networkBytes encodes a number in network byte order, as in intervals.
func networkBytes(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// interfaceBytes encodes an interface name with padding, or a prefix of names without padding.
func interfaceBytes(n rules.InterfaceName) []byte {
	if n.Prefix {
		return []byte(n.Name)
	}
	key := make([]byte, interfaceNameLength)
	copy(key, n.Name)
	return key
}

// hasInterval reports whether a range contains several numbers.
func hasInterval[T uint16 | uint32](ranges []rules.Range[T]) bool {
	return slices.ContainsFunc(ranges, func(r rules.Range[T]) bool { return !r.IsSingle() })
}

// addrRange decodes an interval of addresses. It returns false if the interval is invalid.
func addrRange(first, last []byte) (netipx.IPRange, bool) {
	a, okA := netip.AddrFromSlice(first)
	b, okB := netip.AddrFromSlice(last)
	r := netipx.IPRangeFrom(a, b)
	return r, okA && okB && r.IsValid()
}

// keyText formats a key for error messages.
func keyText(key []byte) string {
	if a, ok := netip.AddrFromSlice(key); ok {
		return a.String()
	}
	return fmt.Sprintf("0x%x", key)
}

// networkNumber decodes a number in network byte order. It returns false if the key does not have
// the size of T.
func networkNumber[T uint16 | uint32](key []byte) (T, bool) {
	switch any(T(0)).(type) {
	case uint16:
		if len(key) == 2 {
			return T(binary.BigEndian.Uint16(key)), true
		}
	case uint32:
		if len(key) == 4 {
			return T(binary.BigEndian.Uint32(key)), true
		}
	}
	return 0, false
}
