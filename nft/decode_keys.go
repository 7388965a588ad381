package nft

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-mesh/sluice/rules"
)

// A keyInterval contains all keys from first to last. first equals last for a single key.
type keyInterval struct{ first, last []byte }

// keys returns the keys of the set, in unspecified order. The catchall element is not included.
func (s *decodedSet) keys() ([]keyInterval, error) {
	if err := s.loadStatic(); err != nil || s.keyList != nil {
		return s.keyList, err
	}
	keys := make([]keyInterval, 0, len(s.elements))
	switch {
	case s.hasSeveralFields() || !s.interval:
		for _, el := range s.elements {
			last := el.key
			if end := s.lastKeys[string(el.key)]; end != nil {
				last = end
			}
			keys = append(keys, keyInterval{el.key, last})
		}
	default:
		keys = s.appendIntervals(keys)
	}
	s.keyList = keys
	return keys, nil
}

// appendIntervals appends the intervals of a set whose elements are the starts and ends of
// intervals.
func (s *decodedSet) appendIntervals(keys []keyInterval) []keyInterval {
	s.sort()
	var lasts []byte // the last keys of all intervals, which share an allocation
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
		keys = append(keys, keyInterval{el.key, lasts[start:len(lasts):len(lasts)]})
	}
	return keys
}

// identity returns a hash of the elements: sets with equal identities are equal. It returns
// [rules.NoData] for a set that cannot be decoded, that changes, or that does not exist.
func (s *decodedSet) identity() string {
	if s == nil || s.loadStatic() != nil {
		return rules.NoData
	}
	if s.id != "" {
		return s.id
	}
	if !s.dependsOnOrder() {
		s.sort()
	}
	h := sha256.New()
	writePart := func(b []byte) {
		_, _ = h.Write(native.AppendUint32(nil, uint32(len(b))))
		_, _ = h.Write(b)
	}
	fmt.Fprintf(h, "%t %t %d %d %v ",
		s.interval, s.catchall != nil, len(s.elements), s.keyLength, s.fieldLengths)
	writePart(s.catchall)
	for _, el := range s.elements {
		writePart(el.key)
		writePart([]byte{map[bool]byte{true: 1}[el.end]})
		writePart(s.lastKeys[string(el.key)])
		writePart(s.verdicts[string(el.key)])
		writePart(s.data[string(el.key)])
	}
	s.id = fmt.Sprintf("%x", h.Sum(nil))
	return s.id
}

// dependsOnOrder reports whether the order of the elements may decide which value a map contains
// for a key. If two intervals of several fields have a common key, the kernel uses the value of the
// element that was added first.
func (s *decodedSet) dependsOnOrder() bool {
	if s.verdicts == nil && s.data == nil || !s.hasSeveralFields() {
		return false
	}
	fields := make([]operand, len(s.fieldLengths))
	for i, length := range s.fieldLengths {
		fields[i].length = length
	}
	keys, err := s.keys()
	return err != nil || mayOverlap(fields, keys)
}

// A cacheKey identifies the form in which the keys of a set were decoded.
type cacheKey struct {
	field   field
	network bool
	ipv6    bool
	text    string // identifies other results, if field is fieldNone
}

// A cacheEntry contains the results of the function that [cached] has called.
type cacheEntry[T any] struct {
	value T
	ok    bool
}

// cached returns the result of compute for the keys. It caches the result for the set and the
// field, because many rules may use the set. Without a set it caches nothing.
func cached[T any](v values, op operand, compute func([]keyInterval) (T, bool)) (T, bool) {
	if v.set == nil {
		return compute(v.keys)
	}
	key := cacheKey{op.field, op.networkOrder, op.ipv6, ""}
	if op.field == fieldNone {
		key.text = op.text
	}
	if entry, ok := v.set.cache[key].(cacheEntry[T]); ok {
		return entry.value, entry.ok
	}
	value, ok := compute(v.keys)
	if v.set.cache == nil {
		v.set.cache = map[cacheKey]any{}
	}
	v.set.cache[key] = cacheEntry[T]{value, ok}
	return value, ok
}

// sort sorts the elements in ascending order.
func (s *decodedSet) sort() {
	if !s.sorted {
		slices.SortFunc(s.elements, compareElements)
		s.sorted = true
	}
}

// compareElements orders elements by key, and the end of an interval before the start of another
// with the same key. The kernel lists two such elements in unspecified order.
func compareElements(a, b element) int {
	switch d := bytes.Compare(a.key, b.key); {
	case d != 0 || a.end == b.end:
		return d
	case a.end:
		return -1
	}
	return 1
}

// decrement subtracts 1 from a big-endian number. 0 becomes all ones.
func decrement(key []byte) {
	for i := len(key) - 1; i >= 0; i-- {
		key[i]--
		if key[i] != 0xff {
			break
		}
	}
}

// increment adds 1 to a big-endian number. All ones become 0.
func increment(key []byte) {
	for i := len(key) - 1; i >= 0; i-- {
		key[i]++
		if key[i] != 0 {
			break
		}
	}
}

// addrRanges returns the normalized address ranges of an interval set of addresses. It returns nil
// for any other set, and for a set that changes or that the model cannot represent. A set may have
// thousands of elements. Therefore addrRanges calls load and sort only if the kernel has not listed
// the elements in descending order.
func (s *decodedSet) addrRanges() []netipx.IPRange {
	if s.ranges != nil || s.rangesComputed || !s.interval || s.hasSeveralFields() || s.isDynamic ||
		s.unsupportedReason != "" {
		return s.ranges
	}
	s.rangesComputed = true
	d := rangeBuilder{ranges: make([]netipx.IPRange, 0, s.size()/2+1)}
	ok := s.lists != nil
	format := newPlainFormat(s.keyLength)
	for _, list := range s.lists {
		list.Each(func(_ uint16, value []byte) {
			el, decoded := format.read(value)
			if !decoded {
				el, decoded = s.read(value)
			}
			ok = ok && decoded && d.add(el)
		})
	}
	if s.unsupportedReason != "" || s.catchall != nil {
		return nil
	}
	if !ok { // the elements are not in descending order, or are not listed
		s.load()
		s.sort()
		d = rangeBuilder{ranges: d.ranges[:0]}
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

// A rangeBuilder builds address ranges from the elements of an interval set, which are added in
// descending order.
type rangeBuilder struct {
	ranges []netipx.IPRange
	above  netip.Addr // the key of the previous element, invalid before the first one
	isEnd  bool       // the previous element was the end of an interval
}

// add adds the next element. It returns false if the key is not an address, or if the order is not
// descending.
func (d *rangeBuilder) add(el element) bool {
	addr, ok := netip.AddrFromSlice(el.key)
	if !ok {
		return false
	}
	n, first := len(d.ranges), !d.above.IsValid()
	if !first {
		order := addr.Compare(d.above)
		if addr.BitLen() != d.above.BitLen() || order > 0 || order == 0 && (d.isEnd || !el.end) {
			return false
		}
	}
	switch {
	case el.end:
	case n > 0 && d.ranges[n-1].From() == d.above: // adjacent ranges
		d.ranges[n-1] = netipx.IPRangeFrom(addr, d.ranges[n-1].To())
	case first:
		lastAddr := netipx.RangeOfPrefix(netip.PrefixFrom(addr, 0)).To()
		d.ranges = append(d.ranges, netipx.IPRangeFrom(addr, lastAddr))
	default:
		d.ranges = append(d.ranges, netipx.IPRangeFrom(addr, d.above.Prev()))
	}
	d.above, d.isEnd = addr, el.end
	return true
}
