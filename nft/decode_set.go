package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go4.org/netipx"
	"golang.org/x/sys/unix"
)

// decodedSets contains the sets of a table by name.
type decodedSets map[string]*decodedSet

// decodedSet is a set or a map in the kernel.
type decodedSet struct {
	anonymous bool
	interval  bool
	// fieldLengths contains the lengths in bytes of the fields of an interval set whose keys have
	// several fields, and is nil for other sets. Each interval of such a set has a first and a last
	// key.
	fieldLengths      []int
	keyLength         int    // in bytes, 0 if unknown
	dataLength        int    // of the values of a map
	unsupportedReason string // why the model cannot represent the set, empty if it can
	isDynamic         bool   // rules or timeouts may change the elements after they were read
	hasLimits         bool   // elements may have an expression that affects the match
	table             string // the family and the name
	contents          string // the result of currentContents if isDynamic is set
	// bounds contains the properties that decide whether a rule can add an element, and when the
	// element expires. It is empty if these properties or the elements are unknown.
	bounds string
	// lists contains the dumped elements until load has decoded them. listedCount is the number of
	// dumped elements.
	lists          []attributes
	listedCount    int
	elements       []element
	sorted         bool             // elements is sorted
	ranges         []netipx.IPRange // cached result of addrRanges
	rangesComputed bool             // addrRanges has been called
	keyList        []keyInterval    // cached result of keys
	// lastKeys maps the first keys of intervals of several fields to the last keys.
	lastKeys map[string][]byte
	// verdicts maps the keys of a verdict map, or the first keys of intervals, to verdicts. It is
	// nil for other sets. data contains the values of a map of data.
	verdicts map[string]attributes
	data     map[string][]byte
	// catchall is the data of the element for all keys that are not in the set, or nil.
	catchall attributes
	// cache contains decoded keys, and id the cached result of identity.
	cache map[cacheKey]any
	id    string
}

// maxMapElements bounds the number of elements of a map, or of an interval set with several fields.
// These elements take more memory than the elements of other sets.
const maxMapElements = 1 << 17

// decodeSet decodes the properties of a set, without its elements.
func decodeSet(a attributes) *decodedSet {
	flags := a.Number(unix.NFTA_SET_FLAGS)
	s := &decodedSet{
		anonymous: flags&unix.NFT_SET_ANONYMOUS != 0, interval: flags&unix.NFT_SET_INTERVAL != 0,
		keyLength:  int(a.Number(unix.NFTA_SET_KEY_LEN)),
		dataLength: int(a.Number(unix.NFTA_SET_DATA_LEN)),
		isDynamic:  flags&unix.NFT_SET_EVAL != 0,
	}
	desc := attributes(a.Get(unix.NFTA_SET_DESC))
	if s.interval {
		s.fieldLengths = decodeFieldLengths(desc.Get(nftaSetDescConcat))
	}
	s.bounds = setBounds(desc.Number(unix.NFTA_SET_DESC_SIZE),
		a.Number64(unix.NFTA_SET_TIMEOUT), a.Get(nftaSetExpr), a.Get(nftaSetExpressions))
	s.hasLimits = affectsMatch(a.Get(nftaSetExpr)) || a.Get(nftaSetExpressions) != nil
	known := uint32(unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT | unix.NFT_SET_INTERVAL |
		unix.NFT_SET_TIMEOUT | nftSetConcat | nftSetExpr)
	if flags&unix.NFT_SET_MAP != 0 {
		known |= unix.NFT_SET_MAP
		if a.Number(unix.NFTA_SET_DATA_TYPE) == unix.NFT_DATA_VERDICT {
			s.verdicts = map[string]attributes{}
		} else {
			s.data = map[string][]byte{}
		}
	}
	if other := flags &^ known; other != 0 {
		s.unsupportedReason = fmt.Sprintf("set %s with flags 0x%x", a.Text(unix.NFTA_SET_NAME), other)
	}
	return s
}

// decodeFieldLengths returns the lengths of the fields of a key, or nil if it has only one field.
// The number of lengths, not the flag NFT_SET_CONCAT, determines how the kernel compares keys: not
// all kernels check the flag, and a set without intervals may have it too.
func decodeFieldLengths(list attributes) []int {
	var lengths []int
	list.Each(func(_ uint16, value []byte) {
		lengths = append(lengths, int(attributes(value).Number(nftaSetFieldLen)))
	})
	if len(lengths) < 2 {
		return nil
	}
	return lengths
}

// hasSeveralFields reports whether the set contains intervals of keys with several fields.
func (s *decodedSet) hasSeveralFields() bool { return len(s.fieldLengths) > 0 }

// comparesFields reports whether a lookup of the operands compares each of them completely with
// one field of the keys.
func (s *decodedSet) comparesFields(ops []operand) bool {
	switch {
	case s.hasSeveralFields():
		// The length of an operand that the model cannot represent is a maximum.
		return slices.EqualFunc(s.fieldLengths, ops, func(length int, op operand) bool {
			return length == op.length || op.field == fieldUnknown && length <= op.length &&
				words(length) == words(op.length)
		})
	case len(ops) == 1:
		return true
	case s.interval:
		return false // the kernel compares keys as numbers, regardless of their fields
	}
	length := 0
	for _, op := range ops {
		length += 4 * words(op.length)
	}
	return length == s.keyLength
}

// setBounds returns the bounds of a set. size is the maximum number of elements, 0 for no maximum.
// timeout is the timeout of elements without their own timeout, in milliseconds.
func setBounds(size uint32, timeout uint64, expressions ...attributes) string {
	text := fmt.Sprintf("size %d timeout %d", size, timeout)
	for _, e := range expressions {
		text += fmt.Sprintf(" %x", []byte(e))
	}
	return text
}

// affectsMatch reports whether an expression of an element can prevent a match of the element. A
// limit and a quota can, a counter cannot.
func affectsMatch(expression attributes) bool {
	return expression != nil && !expression.HasText(unix.NFTA_EXPR_NAME, "counter") &&
		!expression.HasText(unix.NFTA_EXPR_NAME, "last")
}

// addElements adds a list of elements from a dump. The kernel may dump a set in several lists.
func (s *decodedSet) addElements(list attributes) {
	list.Each(func(uint16, []byte) { s.listedCount++ })
	s.lists = append(s.lists, slices.Clone(list))
}

// size returns the number of elements.
func (s *decodedSet) size() int { return max(s.listedCount, len(s.elements)) }

// A plainFormat decodes elements that have only a key of the given length and, optionally, flags.
// It is optimized for speed, because sets with thousands of elements have this format.
type plainFormat struct {
	length int
	// header contains the headers of the key attribute and of its nested attribute. flags is the
	// header of the flags attribute.
	header uint64
	flags  uint32
}

// newPlainFormat returns the format of elements whose keys have the length.
func newPlainFormat(keyLength int) plainFormat {
	value := unix.NLA_HDRLEN + keyLength
	header := appendHeader(nil, unix.NFTA_SET_ELEM_KEY, unix.NLA_HDRLEN+value)
	header = appendHeader(header, unix.NFTA_DATA_VALUE, value)
	flags := appendHeader(nil, unix.NFTA_SET_ELEM_FLAGS, unix.NLA_HDRLEN+4)
	return plainFormat{keyLength, native.Uint64(header), native.Uint32(flags)}
}

// read decodes an element. It returns false if the element does not have the format.
func (p plainFormat) read(a attributes) (el element, ok bool) {
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
	flags := binary.BigEndian.Uint32(a[unix.NLA_HDRLEN:])
	el.end = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0
	return el, flags&^unix.NFT_SET_ELEM_INTERVAL_END == 0
}

// load decodes the elements that addElements has added since the last call, if any.
func (s *decodedSet) load() {
	if s.lists == nil {
		return
	}
	if (s.verdicts != nil || s.data != nil || s.hasSeveralFields()) && s.listedCount > maxMapElements {
		s.unsupportedReason = fmt.Sprintf("%d elements", s.listedCount)
		s.lists, s.bounds = nil, ""
		return
	}
	if s.isDynamic {
		s.contents = currentContents(s.lists)
	}
	s.elements, s.catchall, s.lastKeys = make([]element, 0, s.size()), nil, nil
	for _, list := range s.lists {
		list.Each(func(_ uint16, value []byte) {
			if el, ok := s.read(value); ok {
				s.elements = append(s.elements, el)
			}
		})
	}
	s.lists = nil
}

// read decodes an element. The result refers to the bytes of a.
func (s *decodedSet) read(a attributes) (el element, ok bool) {
	var data, last attributes
	catchall := false
	a.Each(func(attrType uint16, value []byte) {
		switch attrType {
		case unix.NFTA_SET_ELEM_KEY:
			el.key = attributes(value).Get(unix.NFTA_DATA_VALUE)
		case nftaSetElemKeyEnd:
			last = attributes(value).Get(unix.NFTA_DATA_VALUE)
		case unix.NFTA_SET_ELEM_FLAGS:
			if len(value) != 4 {
				s.unsupportedReason = "set element with malformed flags"
				return
			}
			flags := binary.BigEndian.Uint32(value)
			el.end, catchall = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0,
				flags&nftSetElemCatchall != 0
		case unix.NFTA_SET_ELEM_DATA:
			data = value
		case unix.NFTA_SET_ELEM_OBJREF:
			s.unsupportedReason = "set element with an object"
		case unix.NFTA_SET_ELEM_EXPR:
			if affectsMatch(value) {
				s.unsupportedReason, s.hasLimits = "set element with expressions", true
			}
		case nftaSetElemExpressions:
			wellFormed := len(value) > 0 && attributes(value).Each(func(_ uint16, e []byte) {
				if affectsMatch(e) {
					s.unsupportedReason, s.hasLimits = "set element with expressions", true
				}
			})
			if !wellFormed {
				s.unsupportedReason = "set element with expressions"
			}
		}
	})
	switch {
	case catchall && el.key == nil && s.catchall == nil:
		if s.catchall = data; data == nil {
			s.catchall = attributes{}
		}
		return el, false
	case el.key == nil || catchall:
		s.unsupportedReason = "set element without key"
		return el, false
	case last != nil && (!s.hasSeveralFields() || len(last) != len(el.key)):
		s.unsupportedReason = "set element with a last key"
	case last != nil:
		if s.lastKeys == nil {
			s.lastKeys = map[string][]byte{}
		}
		s.rejectIfDuplicate(s.lastKeys[string(el.key)] != nil)
		s.lastKeys[string(el.key)] = last
	}
	if data != nil && s.verdicts != nil {
		s.rejectIfDuplicate(s.verdicts[string(el.key)] != nil)
		s.verdicts[string(el.key)] = data.Get(unix.NFTA_DATA_VERDICT)
	}
	if data != nil && s.data != nil {
		s.rejectIfDuplicate(s.data[string(el.key)] != nil)
		s.data[string(el.key)] = data.Get(unix.NFTA_DATA_VALUE)
	}
	return el, true
}

// rejectIfDuplicate marks the set as unsupported if two of its elements have the same key or, for
// intervals, the same first key.
func (s *decodedSet) rejectIfDuplicate(isDuplicate bool) {
	if isDuplicate {
		s.unsupportedReason = "set with a duplicate key"
	}
}

// loadStatic decodes the elements. It returns an error if the model cannot represent the set, or if
// the elements may change.
func (s *decodedSet) loadStatic() error {
	s.load()
	switch {
	case s.unsupportedReason != "":
		return errors.New(s.unsupportedReason)
	case s.isDynamic:
		return errors.New("set that changes")
	}
	return nil
}
