package nft

import (
	"encoding/binary"
	"math"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"golang.org/x/sys/unix"

	"github.com/sluice-mesh/sluice/nft/internal/nlmsg"
	"github.com/sluice-mesh/sluice/rules"
)

// A set is many values of one match.
type set struct {
	ref       setRef
	anonymous bool
	interval  bool
	hostOrder bool // of the keys; only for the nft command to print them right
	keyType   uint32
	keyLength uint32
	elements  []element
}

// setRef is how expressions refer to a set: by name, and within the transaction that creates it by
// id.
type setRef struct {
	name string
	id   uint32
}

// An element is a key of a set; in an interval set the end of an interval is an element of its own,
// one past the last key.
type element struct {
	key []byte
	end bool
}

// needsSet reports whether a match has more values than it compares with one by one.
func needsSet(m rules.Match) bool {
	switch m := m.(type) {
	case rules.MatchAddr:
		return len(m.Ranges) > 1
	case rules.MatchPort:
		return len(m.Ports) > 1 && !comparesEach(m)
	case rules.MatchOwner:
		return len(m.IDs) > 1
	case rules.MatchInterface:
		return len(m.Names) > 1
	case rules.MatchProtocol:
		return len(m.Protocols) > 1
	}
	return false
}

// setOf returns the set that a match needs, or nil if it needs none.
func setOf(m rules.Match) *set {
	if !needsSet(m) {
		return nil
	}
	switch m := m.(type) {
	case rules.MatchAddr:
		s := &set{ref: setRef{name: m.Set}, anonymous: m.Set == "", interval: true, keyType: typeIPv4, keyLength: 4}
		if m.Family() == rules.IPv6 {
			s.keyType, s.keyLength = typeIPv6, 16
		}
		s.elements = addrElements(m)
		return s
	case rules.MatchPort:
		if len(m.Ports) >= rules.ManyPorts {
			return intervalSet(m.Ports, typePort, portKey)
		}
		return rangeSet(m.Ports, typePort, portKey, portKey)
	case rules.MatchOwner:
		keyType := uint32(typeUID)
		if m.Group {
			keyType = typeGID
		}
		return rangeSet(m.IDs, keyType, hostKey, networkKey)
	case rules.MatchInterface:
		keys := make([][]byte, len(m.Names))
		for i, n := range m.Names {
			keys[i] = interfaceKey(n)
		}
		s := keySet(keys, typeInterface)
		s.hostOrder = true // as nft has all strings
		return s
	case rules.MatchProtocol:
		keys := make([][]byte, len(m.Protocols))
		for i, p := range m.Protocols {
			keys[i] = []byte{byte(p)}
		}
		return keySet(keys, typeProtocol)
	}
	return nil
}

// comparesEach reports whether a match is a comparison with each of its ports: cheaper than a set
// where that is possible, for the kernel and in the number of objects.
func comparesEach(m rules.MatchPort) bool { return m.Not && len(m.Ports) <= 3 && !hasInterval(m.Ports) }

func addrElements(m rules.MatchAddr) []element {
	elements := make([]element, 0, 2*len(m.Ranges))
	keys := make([]byte, 0, cap(elements)*int(addrField(m.Family(), m.Side).length)) // of all of them: there may be thousands
	add := func(a netip.Addr, end bool) {
		start := len(keys)
		keys = appendAddr(keys, a)
		elements = append(elements, element{keys[start:len(keys):len(keys)], end})
	}
	for _, r := range m.Ranges {
		add(r.From(), false)
		if after := r.To().Next(); after.IsValid() {
			add(after, true)
		} // else it ends the space
	}
	return elements
}

// addrElementCount is how many elements addrElements returns.
func addrElementCount(ranges []netipx.IPRange) int {
	n := 2 * len(ranges)
	for _, r := range ranges {
		if !r.To().Next().IsValid() {
			n--
		}
	}
	return n
}

// keySet is an anonymous set of single keys.
func keySet(keys [][]byte, keyType uint32) *set {
	s := &set{anonymous: true, keyType: keyType, keyLength: uint32(len(keys[0]))}
	for _, key := range keys {
		s.elements = append(s.elements, element{key: key})
	}
	return s
}

// rangeSet is an anonymous set of numbers: of intervals if one of them is a range.
func rangeSet[T uint16 | uint32](ranges []rules.Range[T], keyType uint32, single, interval func(T) []byte) *set {
	if !hasInterval(ranges) {
		keys := make([][]byte, len(ranges))
		for i, r := range ranges {
			keys[i] = single(r.First)
		}
		s := keySet(keys, keyType)
		s.hostOrder = keyType != typePort
		return s
	}
	return intervalSet(ranges, keyType, interval)
}

// intervalSet is an anonymous set of intervals of numbers.
func intervalSet[T uint16 | uint32](ranges []rules.Range[T], keyType uint32, interval func(T) []byte) *set {
	s := &set{anonymous: true, interval: true, keyType: keyType, keyLength: uint32(len(interval(0)))}
	for _, r := range ranges {
		s.elements = append(s.elements, element{key: interval(r.First)})
		if r.Last != ^T(0) {
			s.elements = append(s.elements, element{key: interval(r.Last + 1), end: true})
		}
	}
	return s
}

// writeSet creates a set with its elements. The description names the rule to which an anonymous
// set belongs.
func (e *encoder) writeSet(s *set, d description) {
	flags := uint32(0)
	if s.anonymous {
		flags |= unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT
	}
	if s.interval {
		flags |= unix.NFT_SET_INTERVAL
	}
	d.set = s.ref.name
	e.message(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, d)
	e.text(unix.NFTA_SET_TABLE, e.table.Name)
	e.text(unix.NFTA_SET_NAME, s.ref.name)
	e.number(unix.NFTA_SET_FLAGS, flags)
	e.number(unix.NFTA_SET_KEY_TYPE, s.keyType)
	e.number(unix.NFTA_SET_KEY_LEN, s.keyLength)
	e.number(unix.NFTA_SET_ID, s.ref.id)
	if s.hostOrder {
		e.attr(unix.NFTA_SET_USERDATA, append([]byte{udataSetKeyByteOrder, 4}, native.AppendUint32(nil, byteOrderHost)...))
	}
	e.end()
	e.writeElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s.ref, s.elements, d)
}

// elementSize is the most that an element takes besides its key, of at most 16 bytes, and
// maxElements keeps a message's list of them below the 64 KiB that an attribute can hold.
const (
	elementSize = 20
	maxElements = math.MaxUint16 / (elementSize + 16) / 2 * 2
)

// writeElements adds elements to a set or deletes them, in as many messages as it takes.
func (e *encoder) writeElements(msg int, flags uint16, ref setRef, elements []element, d description) {
	if len(elements) > 0 { // or the buffer would grow, and be copied, time and again
		e.buf = slices.Grow(e.buf, len(elements)*(elementSize+len(elements[0].key)))
	}
	for first := 0; first < len(elements); first += maxElements {
		part := elements[first:min(first+maxElements, len(elements))]
		d.set = ref.name
		if d.rule == nil {
			d.element = formatKey(part[0].key)
		}
		e.message(msg, flags, d)
		e.text(unix.NFTA_SET_ELEM_LIST_TABLE, e.table.Name)
		e.text(unix.NFTA_SET_ELEM_LIST_SET, ref.name)
		if ref.id != 0 {
			e.number(unix.NFTA_SET_ELEM_LIST_SET_ID, ref.id)
		}
		list := e.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
		for _, el := range part {
			e.buf = appendElement(e.buf, el)
		}
		e.endNest(list)
		e.end()
	}
}

// appendElement writes an element. There may be thousands: that the lengths are known beforehand
// spares most of the time of nests.
func appendElement(buf []byte, el element) []byte {
	data := unix.NLA_HDRLEN + nlmsg.Align(len(el.key)) // the attribute of the key's bytes, and what nests it
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
