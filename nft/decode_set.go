package nft

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

// setDecoder holds the sets of a table while its rules are read.
type setDecoder map[string]*decodedSet

// decodedSet is a set as it was read.
type decodedSet struct {
	anonymous bool
	interval  bool
	keyLength int    // in bytes; 0 if not known
	unknown   string // what the model has no word for
	// lists are the elements as they were dumped, so many, until load has read them.
	lists    []attributes
	listed   int
	elements []element
	sorted   bool             // the elements are
	ranges   []netipx.IPRange // what addrRanges has found
	// verdicts are what a verdict map has for its keys, by the key or the first key of an interval; nil if it is none.
	verdicts map[string]attributes
}

func decodeSet(a attributes) *decodedSet {
	flags := a.number(unix.NFTA_SET_FLAGS)
	s := &decodedSet{
		anonymous: flags&unix.NFT_SET_ANONYMOUS != 0, interval: flags&unix.NFT_SET_INTERVAL != 0,
		keyLength: int(a.number(unix.NFTA_SET_KEY_LEN)),
	}
	known := uint32(unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT | unix.NFT_SET_INTERVAL)
	if flags&unix.NFT_SET_MAP != 0 && a.number(unix.NFTA_SET_DATA_TYPE) == unix.NFT_DATA_VERDICT {
		known |= unix.NFT_SET_MAP
		s.verdicts = map[string]attributes{}
	}
	if other := flags &^ known; other != 0 {
		s.unknown = fmt.Sprintf("set %s with flags 0x%x", a.text(unix.NFTA_SET_NAME), other)
	}
	return s
}

// decides tells whether an expression of an element has a say in whether the element matches: a limit or a quota, but no counter.
func decides(expression attributes) bool {
	return expression != nil && expression.text(unix.NFTA_EXPR_NAME) != "counter"
}

// addElements takes a part of the set's elements.
func (s *decodedSet) addElements(list attributes) {
	list.each(func(uint16, []byte) { s.listed++ })
	s.lists = append(s.lists, slices.Clone(list))
}

// size is how many elements the set has.
func (s *decodedSet) size() int { return max(s.listed, len(s.elements)) }

// plain tells how elements are read that have a key of one length, perhaps flags, and nothing else: those of sets that hold thousands.
type plain struct {
	length int
	// header and flags are the headers of the two attributes, of the first with that of what it nests.
	header uint64
	flags  uint32
}

func newPlain(keyLength int) plain {
	value := unix.NLA_HDRLEN + keyLength
	header := appendHeader(nil, unix.NFTA_SET_ELEM_KEY, unix.NLA_HDRLEN+value)
	header = appendHeader(header, unix.NFTA_DATA_VALUE, value)
	return plain{keyLength, native.Uint64(header), native.Uint32(appendHeader(nil, unix.NFTA_SET_ELEM_FLAGS, unix.NLA_HDRLEN+4))}
}

// read reads an element if it is a plain one.
func (p plain) read(a attributes) (el element, ok bool) {
	const start = 2 * unix.NLA_HDRLEN
	end := start + p.length
	if len(a) < end || native.Uint64(a) != p.header {
		return element{}, false
	}
	el.key = a[start:end:end]
	if a = a[end:]; len(a) == 0 {
		return el, true
	}
	if len(a) != unix.NLA_HDRLEN+4 || native.Uint32(a) != p.flags {
		return element{}, false
	}
	el.end = binary.BigEndian.Uint32(a[unix.NLA_HDRLEN:])&unix.NFT_SET_ELEM_INTERVAL_END != 0
	return el, true
}

// load reads the elements, once.
func (s *decodedSet) load() {
	if s.lists == nil {
		return
	}
	s.elements = make([]element, 0, s.size())
	for _, list := range s.lists {
		list.each(func(_ uint16, value []byte) {
			if el, ok := s.read(value); ok {
				s.elements = append(s.elements, el)
			}
		})
	}
	s.lists = nil
}

// read reads an element. The result shares its bytes.
func (s *decodedSet) read(a attributes) (el element, ok bool) {
	var data attributes
	a.each(func(attrType uint16, value []byte) {
		switch attrType {
		case unix.NFTA_SET_ELEM_KEY:
			el.key = attributes(value).get(unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_FLAGS:
			el.end = len(value) == 4 && binary.BigEndian.Uint32(value)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		case unix.NFTA_SET_ELEM_DATA:
			data = value
		case unix.NFTA_SET_ELEM_EXPR:
			if decides(value) {
				s.unknown = "set element with expressions"
			}
		case nftaSetElemExpressions:
			s.unknown = "set element with expressions"
		}
	})
	if el.key == nil {
		s.unknown = "set element without key"
		return el, false
	}
	if data != nil && s.verdicts != nil {
		s.verdicts[string(el.key)] = data.get(unix.NFTA_DATA_VERDICT)
	}
	return el, true
}

// keys returns the intervals of keys that the set holds, each with its first and last key, in no order; those of another set than
// of intervals are single.
func (s *decodedSet) keys() ([][2][]byte, error) {
	s.load()
	if s.unknown != "" {
		return nil, fmt.Errorf("%s", s.unknown)
	}
	keys := make([][2][]byte, 0, len(s.elements))
	if !s.interval {
		for _, el := range s.elements {
			keys = append(keys, [2][]byte{el.key, el.key})
		}
		return keys, nil
	}
	s.sort()
	var lasts []byte // of all intervals
	if len(s.elements) > 0 {
		lasts = make([]byte, 0, len(s.elements)*len(s.elements[0].key))
	}
	for i, el := range s.elements {
		if el.end {
			continue
		}
		start := len(lasts)
		if i+1 < len(s.elements) {
			lasts = append(lasts, s.elements[i+1].key...)
			decrement(lasts[start:])
		} else {
			lasts = append(lasts, bytes.Repeat([]byte{0xff}, len(el.key))...)
		}
		keys = append(keys, [2][]byte{el.key, lasts[start:len(lasts):len(lasts)]})
	}
	return keys, nil
}

// addrRanges returns the addresses that a set of intervals of them holds, normalised, nil if it is none such. They may be thousands:
// hence without keys, and in the kernel's order without sorting.
func (s *decodedSet) addrRanges() []netipx.IPRange {
	if s.ranges != nil || !s.interval || s.unknown != "" {
		return s.ranges
	}
	d := descent{ranges: make([]netipx.IPRange, 0, s.size()/2+1)}
	ok := s.lists != nil
	usual := newPlain(s.keyLength)
	for _, list := range s.lists {
		list.each(func(_ uint16, value []byte) {
			el, readable := usual.read(value)
			if !readable {
				el, readable = s.read(value)
			}
			ok = ok && readable && d.add(el)
		})
	}
	if s.unknown != "" {
		return nil
	}
	if !ok { // in another order
		s.load()
		s.sort()
		d = descent{ranges: d.ranges[:0]}
		for _, el := range slices.Backward(s.elements) {
			if !d.add(el) {
				return nil
			}
		}
	}
	slices.Reverse(d.ranges)
	s.ranges = d.ranges
	return s.ranges
}

// A descent makes ranges of the elements of a set of intervals, from the highest to the lowest.
type descent struct {
	ranges []netipx.IPRange
	above  netip.Addr // the key of the element before, not valid for the first one
	end    bool       // that one was
}

// add adds the next element. It fails for one that is no address, or not the next lower.
func (d *descent) add(el element) bool {
	at, ok := netip.AddrFromSlice(el.key)
	if !ok {
		return false
	}
	n, first := len(d.ranges), !d.above.IsValid()
	if !first {
		order := at.Compare(d.above)
		if at.BitLen() != d.above.BitLen() || order > 0 || order == 0 && (d.end || !el.end) {
			return false
		}
	}
	switch {
	case el.end:
	case n > 0 && d.ranges[n-1].From() == d.above: // they touch
		d.ranges[n-1] = netipx.IPRangeFrom(at, d.ranges[n-1].To())
	case first:
		d.ranges = append(d.ranges, netipx.IPRangeFrom(at, netipx.RangeOfPrefix(netip.PrefixFrom(at, 0)).To()))
	default:
		d.ranges = append(d.ranges, netipx.IPRangeFrom(at, d.above.Prev()))
	}
	d.above, d.end = at, el.end
	return true
}

// sort brings the elements into ascending order.
func (s *decodedSet) sort() {
	if !s.sorted {
		slices.SortFunc(s.elements, compareElements)
		s.sorted = true
	}
}

// compareElements puts the end of an interval before the start of another at the same key. The kernel lists them in one order or the other.
func compareElements(a, b element) int {
	switch d := bytes.Compare(a.key, b.key); {
	case d != 0 || a.end == b.end:
		return d
	case a.end:
		return -1
	}
	return 1
}

// decrement makes the number one less, or all ones of 0.
func decrement(key []byte) {
	for i := len(key) - 1; i >= 0; i-- {
		key[i]--
		if key[i] != 0xff {
			break
		}
	}
}

// increment makes the number one more, or 0 of all ones.
func increment(key []byte) {
	for i := len(key) - 1; i >= 0; i-- {
		key[i]++
		if key[i] != 0 {
			break
		}
	}
}
