package nftlist

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/sluice-mesh/sluice/nft"
)

// A setElement is an element of a set in JSON.
type setElement struct {
	key, data json.RawMessage
	expires   bool
}

// decodeKey decodes the key of an element, with its attributes. It returns false if the element has
// a statement other than a counter, such as a limit, which may prevent a match.
func decodeKey(e json.RawMessage) (setElement, bool) {
	kind, body := onlyMember(e)
	if kind != "elem" {
		return setElement{key: e}, true
	}
	var object struct {
		Val                                json.RawMessage
		Comment, Timeout, Expires, Counter json.RawMessage
	}
	if !exactly(body, &object) || object.Val == nil {
		return setElement{}, false
	}
	return setElement{key: object.Val, expires: object.Timeout != nil || object.Expires != nil}, true
}

// decodeElement decodes an element of a set or a map.
func decodeElement(e json.RawMessage, isMap bool) (setElement, bool) {
	if !isMap {
		return decodeKey(e)
	}
	var pair []json.RawMessage
	if json.Unmarshal(e, &pair) != nil || len(pair) != 2 {
		return setElement{}, false
	}
	element, ok := decodeKey(pair[0])
	element.data = pair[1]
	return element, ok
}

// hasIntervals reports whether a key of an anonymous set, or a field of a key, is an interval.
func hasIntervals(elements []json.RawMessage, isMap bool) bool {
	return slices.ContainsFunc(elements, func(e json.RawMessage) bool {
		element, _ := decodeElement(e, isMap)
		parts := listIn(element.key, "concat")
		if parts == nil {
			parts = []json.RawMessage{element.key}
		}
		return slices.ContainsFunc(parts, func(part json.RawMessage) bool {
			kind, _ := onlyMember(part)
			return kind == "range" || kind == "prefix" ||
				bytes.HasSuffix(part, []byte(`*"`)) && string(part) != `"*"`
		})
	})
}

// encodeElements adds the encoded elements to the set. keys and values are the types of their keys
// and values. If it cannot encode the elements, it returns the reason.
func encodeElements(s *nft.Set, elements []json.RawMessage, keys, values []datatype) string {
	var intervals []intervalElement
	for _, e := range elements {
		element, ok := decodeElement(e, s.IsMap)
		if !ok {
			return "set element with statements"
		}
		if s.IsMap != (element.data != nil) {
			return "map element without value"
		}
		encoded := nft.SetElement{Expires: element.expires}
		if !addData(&encoded, element.data, values, s.IsMap) {
			return "map element with value " + string(element.data)
		}
		if string(element.key) == `"*"` {
			encoded.Catchall = true
			s.Elements = append(s.Elements, encoded)
			continue
		}
		key, ok := keyOf(element.key, keys, s.Interval)
		if !ok || !s.Interval && !bytes.Equal(key[0], key[1]) ||
			bytes.Compare(key[0], key[1]) > 0 && len(s.FieldLengths) == 0 {
			return "set element " + string(element.key)
		}
		encoded.Key = key[0]
		switch {
		case len(s.FieldLengths) > 0:
			encoded.Last = key[1]
			s.Elements = append(s.Elements, encoded)
		case s.Interval:
			intervals = append(intervals, intervalElement{encoded, key[1]})
		default:
			s.Elements = append(s.Elements, encoded)
		}
	}
	return addIntervals(s, intervals)
}

// keyOf encodes a key as its first and last value.
func keyOf(e json.RawMessage, types []datatype, inInterval bool) (key [2][]byte, ok bool) {
	if len(types) == 1 {
		if types[0].isFlags && !inInterval {
			value, ok := types[0].flags(e)
			return [2][]byte{value, value}, ok
		}
		return types[0].interval(e, inInterval)
	}
	parts := listIn(e, "concat")
	if len(parts) != len(types) {
		return key, false
	}
	for i, t := range types {
		part, ok := keyOf(parts[i], []datatype{t}, inInterval)
		if !ok {
			return key, false
		}
		for j := range key {
			key[j] = append(key[j], part[j]...)
			key[j] = append(key[j], make([]byte, 4*words(t.size)-t.size)...)
		}
	}
	return key, true
}

// addData encodes the value of an element of a map. An element of another set has no value.
func addData(el *nft.SetElement, e json.RawMessage, types []datatype, isMap bool) bool {
	switch {
	case !isMap:
		return true
	case len(types) == 0:
		kind, body := onlyMember(e)
		v, ok := verdictOf(kind, body)
		el.Verdict = v
		return ok
	}
	key, ok := keyOf(e, types, false)
	if types[0].isPair {
		el.Data = slices.Concat(key[0], key[1])
		return ok
	}
	el.Data = key[0]
	return ok && bytes.Equal(key[0], key[1])
}

// An intervalElement is an element of an interval set with its last key.
type intervalElement struct {
	nft.SetElement
	last []byte
}

// addIntervals adds elements of an interval set as the kernel represents them: by a start element,
// and an end element whose key is the key after the last key. If elements overlap, it returns the
// reason why it cannot add them.
func addIntervals(s *nft.Set, elements []intervalElement) string {
	slices.SortFunc(elements, func(a, b intervalElement) int { return bytes.Compare(a.Key, b.Key) })
	for i, el := range elements {
		if i > 0 && bytes.Compare(elements[i-1].last, el.Key) >= 0 {
			return "overlapping set elements"
		}
		if i == 0 && slices.ContainsFunc(el.Key, func(b byte) bool { return b != 0 }) {
			s.Elements = append(s.Elements, nft.SetElement{
				Key: make([]byte, len(el.Key)), IntervalEnd: true,
			})
		}
		s.Elements = append(s.Elements, el.SetElement)
		after := slices.Clone(el.last)
		for j := len(after) - 1; j >= 0; j-- {
			if after[j]++; after[j] != 0 {
				s.Elements = append(s.Elements, nft.SetElement{Key: after, IntervalEnd: true})
				break
			}
		}
	}
	return ""
}
